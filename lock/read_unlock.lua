-- KEYS[1]  the lock's hash, as in read_lock.lua
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel, what the
--          keys of single holds begin with
-- reply    {0, 0}: the owner held nothing; {1, n}: done, n listeners were told
-- atomic   give back, let the hash end with the longest hold that is left, and
--          tell when that is none. Run twice, it changes nothing more.
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
if count == 0 then return {0, 0} end
local left = tonumber(ARGV[2])
for i = left + 1, count do
  redis.call('DEL', ARGV[5] .. ':' .. ARGV[1] .. ':rwlock_timeout:' .. string.format('%.0f', i))
end
if left > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
if redis.call('HGET', KEYS[1], 'mode') == 'write' then return {1, 0} end
local longest = -2
local fields = redis.call('HGETALL', KEYS[1])
for f = 1, #fields, 2 do
  if fields[f] ~= 'mode' then
    for i = 1, tonumber(fields[f + 1]) do
      local ttl = redis.call('PTTL', ARGV[5] .. ':' .. fields[f] .. ':rwlock_timeout:' .. string.format('%.0f', i))
      if ttl > longest then longest = ttl end
    end
  end
end
if longest > 0 then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', longest))
  return {1, 0}
end
redis.call('DEL', KEYS[1])
return {1, redis.call(ARGV[3], ARGV[4], '0')}
