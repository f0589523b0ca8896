-- KEYS[1]  the lock's string
-- ARGV     owner, PUBLISH or SPUBLISH, channel
-- reply    {}: the owner held nothing; n: done, n listeners were told
-- atomic   compare, delete and tell
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {} end
redis.call('DEL', KEYS[1])
return redis.call(ARGV[2], ARGV[3], '0')
