-- KEYS     the lock's hash, as in read_lock.lua; the key of the owner's first hold
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel, what the
--          keys of single holds begin with
-- reply    {}: the owner held nothing; n: done, n listeners were told
-- atomic   give back, let the hash end with the longest hold that is left, and
--          tell when that is none. Run twice, it changes nothing more.
local me = ARGV[1]
local count = redis.call('HGET', KEYS[1], me)
if not count then return {} end
if count == '1' and ARGV[2] == '0' and redis.call('HLEN', KEYS[1]) == 2 then -- 'mode' and me
  redis.call('DEL', KEYS[1], KEYS[2])
  return redis.call(ARGV[3], ARGV[4], '0')
end

local function hold(owner, i) return ARGV[5] .. ':' .. owner .. ':rwlock_timeout:' .. i end
for i = ARGV[2] + 1, tonumber(count) do redis.call('DEL', hold(me, i)) end
if ARGV[2] == '0' then
  redis.call('HDEL', KEYS[1], me)
else
  redis.call('HSET', KEYS[1], me, ARGV[2])
end
if redis.call('HGET', KEYS[1], 'mode') == 'write' then return 0 end
local longest = -2
local fields = redis.call('HGETALL', KEYS[1])
for f = 1, #fields, 2 do
  if fields[f] ~= 'mode' then
    for i = 1, tonumber(fields[f + 1]) do
      local ttl = redis.call('PTTL', hold(fields[f], i))
      if ttl > longest then longest = ttl end
    end
  end
end
if longest > 0 then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', longest))
  return 0
end
redis.call('DEL', KEYS[1])
return redis.call(ARGV[3], ARGV[4], '0')
