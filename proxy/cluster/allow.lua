-- allow says until when keys of removed limits may be deleted. fence.lua goes
-- before it.
-- KEYS[2]  zset of removed limits: limit -> when it was removed (ms)
-- ARGV     token; how long it is allowed (ms), how long ago a limit must have been
--          removed (ms)
-- reply    until when (ms), and the limits
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local until_, since = string.format('%.0f', now + ARGV[2]), string.format('%.0f', now - ARGV[3])
return { until_, redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', since) }
