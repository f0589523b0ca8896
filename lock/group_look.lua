-- KEYS[1]  the group's hash, as in group_lock.lua
-- ARGV     the values
-- reply    ms: one or more are held, the last of them for so long; {}: none is.
--          Writes nothing.
local key = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local last = now
for _, value in ipairs(ARGV) do
  local holder = redis.call('HGET', key, value)
  if holder then
    local stop = tonumber(redis.call('HGET', key, value .. ':' .. holder .. ':expire_time') or 0) or 0
    if stop > last then last = stop end
  end
end
if last == now then return {} end
local ttl = redis.call('PTTL', key)
if ttl >= 0 and ttl < last - now then return ttl end
return last - now
