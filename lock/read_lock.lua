-- KEYS     the lock's hash: 'mode' -> 'read' or 'write', reader -> number of its
--          holds, 'owner:write' -> number of the writer's; the key of this hold
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    0: held; {ms}: a writer's for so long (-1: without end, -2: ours has ended)
-- atomic   look and take. Each hold has a key of its own beside the hash, so
--          that the hash can end with the last living reader. Run twice, it
--          changes nothing more.
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then
  if ARGV[2] ~= '1' then return {-2} end
  redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], '1')
else
  local mode = redis.call('HGET', KEYS[1], 'mode')
  if mode ~= 'read' and redis.call('HEXISTS', KEYS[1], ARGV[1] .. ':write') == 0 then
    return {ttl}
  elseif ARGV[2] ~= '1' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return {-2}
  end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
if ttl < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 0
