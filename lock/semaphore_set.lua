-- KEYS[1]  a number
-- ARGV     its first value, PUBLISH or SPUBLISH, channel, message
-- reply    1: set; {}: it existed
if redis.call('SETNX', KEYS[1], ARGV[1]) == 0 then return {} end
redis.call(ARGV[2], ARGV[3], ARGV[4])
return 1
