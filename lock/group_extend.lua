-- KEYS[1]  the group's hash, as in group_lock.lua
-- ARGV     owner, lease in ms, the values
-- reply    1: all are held for at least the lease; {}: the owner does not hold all,
--          and nothing has changed
local key, owner, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
for i = 3, #ARGV do
  if redis.call('HGET', key, ARGV[i]) ~= owner then return {} end
end
local clock = redis.call('TIME')
local stop = clock[1] * 1000 + math.floor(clock[2] / 1000) + lease
for i = 3, #ARGV do
  local field = ARGV[i] .. ':' .. owner .. ':expire_time'
  if (tonumber(redis.call('HGET', key, field) or 0) or 0) < stop then redis.call('HSET', key, field, stop) end
end
local ttl = redis.call('PTTL', key)
if ttl ~= -1 and ttl < lease then redis.call('PEXPIRE', key, lease) end
return 1
