-- KEYS[1]  the lock's hash, as in read_lock.lua
-- ARGV     owner, lease in ms, what the keys of single holds begin with
-- reply    1: held for at least the lease; {}: the owner holds nothing
-- atomic   the hash and the keys of all the owner's holds together
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
if count == 0 then return {} end
local lease = tonumber(ARGV[2])
for i = 1, count do
  local key = ARGV[3] .. ':' .. ARGV[1] .. ':rwlock_timeout:' .. string.format('%.0f', i)
  if redis.call('PTTL', key) < lease then redis.call('SET', key, '1', 'PX', ARGV[2]) end
end
if redis.call('PTTL', KEYS[1]) < lease then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
