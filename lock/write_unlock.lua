-- KEYS[1]  the lock's hash, as in read_lock.lua
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel, what the
--          keys of single holds begin with
-- reply    {0, 0}: the owner held nothing; {1, n}: done, n listeners were told
-- atomic   give back and tell everybody. A writer that also reads goes on as a
--          reader, and the hash ends with its longest hold. Run twice, it
--          changes nothing more.
local field = ARGV[1] .. ':write'
if redis.call('HEXISTS', KEYS[1], field) == 0 then return {0, 0} end
if ARGV[2] ~= '0' then
  redis.call('HSET', KEYS[1], field, ARGV[2])
  return {1, 0}
end
redis.call('HDEL', KEYS[1], field)
local longest = -2
local reads = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
for i = 1, reads do
  local ttl = redis.call('PTTL', ARGV[5] .. ':' .. ARGV[1] .. ':rwlock_timeout:' .. string.format('%.0f', i))
  if ttl > longest then longest = ttl end
end
if longest > 0 then
  redis.call('HSET', KEYS[1], 'mode', 'read')
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', longest))
else
  redis.call('DEL', KEYS[1])
end
return {1, redis.call(ARGV[3], ARGV[4], '1')}
