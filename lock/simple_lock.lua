-- KEYS[1]  the lock's string: owner
-- ARGV     owner, lease in ms
-- reply    0: held; {ms}: another's for so long (-1: without end)
-- atomic   look and take. Run twice, it changes nothing more.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local ttl = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {ttl} end
if ttl < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
