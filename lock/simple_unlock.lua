-- KEYS[1]  the lock's string
-- ARGV     owner, PUBLISH or SPUBLISH, channel
-- reply    {0, 0}: the owner held nothing; {1, n}: done, n listeners were told
-- atomic   compare, delete and tell
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0, 0} end
redis.call('DEL', KEYS[1])
return {1, redis.call(ARGV[2], ARGV[3], '0')}
