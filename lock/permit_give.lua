-- KEYS     as in permit_take.lua
-- ARGV     permit (16 bytes), PUBLISH or SPUBLISH, channel
-- reply    1: given back; {}: it was not held
-- atomic   give back and tell the new number
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return {} end
redis.call(ARGV[2], ARGV[3], string.format('%.0f', redis.call('INCR', KEYS[1])))
return 1
