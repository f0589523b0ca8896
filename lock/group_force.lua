-- KEYS[1]  the group's hash, as in group_lock.lua
-- ARGV     PUBLISH or SPUBLISH, channel, the values
-- reply    n: one or more were held, n listeners were told; {}: none was
-- atomic   take all away, whoever has them, and tell
local key = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local held = false
for i = 3, #ARGV do
  local holder = redis.call('HGET', key, ARGV[i])
  if holder then
    local mark = ARGV[i] .. ':' .. holder
    local stop = tonumber(redis.call('HGET', key, mark .. ':expire_time') or 0) or 0
    if stop > now then held = true end
    redis.call('HDEL', key, ARGV[i], mark .. ':expire_time', mark .. ':lock_count')
  end
end
if not held then return {} end
return redis.call(ARGV[1], ARGV[2], '0')
