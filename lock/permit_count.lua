-- KEYS     as in permit_take.lua
-- reply    n: permits that could be taken now. Writes nothing.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local over = redis.call('ZCOUNT', KEYS[2], '-inf', string.format('%.0f', now))
return tonumber(redis.call('GET', KEYS[1]) or 0) + over
