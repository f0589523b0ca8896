-- KEYS[1] sorted set: node id -> milliseconds of its last sign of life
-- ARGV    id of the node, milliseconds that a node lives without a sign
-- reply   how many nodes are alive
-- One step, by Redis's clock: the node is noted, silent ones are dropped.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
