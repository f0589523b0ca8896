-- KEYS     hashes as in reentrant_lock.lua
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    0: all are held; {ms, i}: the i-th is another's for so long (-1: without
--          end, -2: ours has ended)
-- atomic   look at all, then take all or none. Run twice, it changes nothing more.
local ttls = {}
for i, key in ipairs(KEYS) do
  ttls[i] = redis.call('PTTL', key)
  if ttls[i] == -2 then
    if ARGV[2] ~= '1' then return {-2, i} end
  elseif redis.call('HEXISTS', key, ARGV[1]) == 0 then
    return {ttls[i], i}
  end
end
for i, key in ipairs(KEYS) do
  redis.call('HSET', key, ARGV[1], ARGV[2])
  if ttls[i] < tonumber(ARGV[3]) then redis.call('PEXPIRE', key, ARGV[3]) end
end
return 0
