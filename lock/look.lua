-- KEYS[1]  what is there while the lock is held
-- ARGV     the mode of a read-write lock that counts, or nothing
-- reply    ms: held for so long (-1: without end); {}: not held. Writes nothing.
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then return {} end
if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'mode') ~= ARGV[1] then return {} end
return ttl
