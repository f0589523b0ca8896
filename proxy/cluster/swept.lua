-- swept forgets removed limits of which all keys were looked at. fence.lua goes
-- before it.
-- KEYS[2]  zset of removed limits: limit -> when it was removed (ms)
-- ARGV     token; how long ago a limit must have been removed (ms); the limits
-- reply    1
-- A limit that came back and was removed again meanwhile stays.
local t = redis.call('TIME')
local since = t[1] * 1000 + math.floor(t[2] / 1000) - ARGV[2]
for i = 3, #ARGV do
  local at = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if at and tonumber(at) <= since then redis.call('ZREM', KEYS[2], ARGV[i]) end
end
return 1
