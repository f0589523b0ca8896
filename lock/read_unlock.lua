-- KEYS     the lock's hash, as in read_lock.lua; the key of the owner's first hold
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel
-- reply    {}: the owner held nothing; n: done, n listeners were told
-- atomic   give back, let the hash end with the longest hold that is left, and
--          tell when that is none. Run twice, it changes nothing more.
local call, key, me = redis.call, KEYS[1], ARGV[1]
local count = call('HGET', key, me)
if not count then return {} end
if count == '1' and ARGV[2] == '0' and call('HLEN', key) == 2 then -- 'mode' and me
  call('DEL', key, KEYS[2])
  return call(ARGV[3], ARGV[4], '0')
end
local start = KEYS[2]:sub(1, -#(me .. ':rwlock_timeout:1') - 1) -- of the keys of all holds
local function hold(owner, i) return start .. owner .. ':rwlock_timeout:' .. i end
for i = ARGV[2] + 1, tonumber(count) do call('DEL', hold(me, i)) end
if ARGV[2] == '0' then
  call('HDEL', key, me)
else
  call('HSET', key, me, ARGV[2])
end
if call('HGET', key, 'mode') == 'write' then return 0 end
local longest = -2
local fields = call('HGETALL', key)
for f = 1, #fields, 2 do
  if fields[f] ~= 'mode' then
    for i = 1, tonumber(fields[f + 1]) do
      local ttl = call('PTTL', hold(fields[f], i))
      if ttl > longest then longest = ttl end
    end
  end
end
if longest > 0 then
  call('PEXPIRE', key, string.format('%.0f', longest))
  return 0
end
call('DEL', key)
return call(ARGV[3], ARGV[4], '0')
