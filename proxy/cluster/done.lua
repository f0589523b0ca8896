-- done takes an alert out of the queue. fence.lua goes before it.
-- KEYS[2]  the queue
-- ARGV     token; the alert
-- reply    1; 0: it was gone
return redis.call('LREM', KEYS[2], 1, ARGV[2])
