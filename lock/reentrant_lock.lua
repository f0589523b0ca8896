-- KEYS[1]  the lock's hash: owner -> number of holds
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    0: held; {ms}: another's for so long (-1: without end, -2: ours has ended)
-- atomic   look, take and set the end. Run twice, it changes nothing more: the
--          number is absolute, and only the first hold can create the hash.
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then
  if ARGV[2] ~= '1' then return {-2} end
elseif redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {ttl}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ttl < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 0
