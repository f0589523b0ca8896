-- KEYS     as in permit_take.lua
-- ARGV     permit (16 bytes), lease in ms
-- reply    1: held for at least the lease; {}: it came back by itself
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local score = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not score or tonumber(score) <= now then return {} end
redis.call('ZADD', KEYS[2], 'GT', string.format('%.0f', now + ARGV[2]), ARGV[1])
return 1
