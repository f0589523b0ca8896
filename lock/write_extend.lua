-- KEYS[1]  the lock's hash, as in read_lock.lua
-- ARGV     owner, lease in ms
-- reply    1: held for at least the lease; {}: the owner holds nothing
if redis.call('HEXISTS', KEYS[1], ARGV[1] .. ':write') == 0 then return {} end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
