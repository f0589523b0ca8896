-- KEYS[1]  the lock's hash, as in read_lock.lua
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel, what the
--          keys of single holds begin with
-- reply    {}: the owner held nothing; n: done, n listeners were told
-- atomic   give back and tell everybody. A writer that also reads goes on as a
--          reader, and the hash ends with its longest hold. Run twice, it
--          changes nothing more.
-- told     '1' wakes all of a Redisson who wait in its queue, which misses one that
--          is about to; '0' then leaves a permit there for the first to come.
local field = ARGV[1] .. ':write'
local counts = redis.call('HMGET', KEYS[1], field, ARGV[1])
if not counts[1] then return {} end
if ARGV[2] ~= '0' then
  redis.call('HSET', KEYS[1], field, ARGV[2])
  return 0
end
local longest = -2
for i = 1, tonumber(counts[2] or 0) do
  local ttl = redis.call('PTTL', ARGV[5] .. ':' .. ARGV[1] .. ':rwlock_timeout:' .. i)
  if ttl > longest then longest = ttl end
end
if longest > 0 then
  redis.call('HDEL', KEYS[1], field)
  redis.call('HSET', KEYS[1], 'mode', 'read')
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', longest))
else
  redis.call('DEL', KEYS[1])
end
local told = redis.call(ARGV[3], ARGV[4], '1')
redis.call(ARGV[3], ARGV[4], '0')
return told
