-- KEYS[1]  what is there while the lock is held
-- ARGV     PUBLISH or SPUBLISH, channel
-- reply    n: it was held, n listeners were told; {}: it was not
if redis.call('DEL', KEYS[1]) == 0 then return {} end
return redis.call(ARGV[1], ARGV[2], '0')
