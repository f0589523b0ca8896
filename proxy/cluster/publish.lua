-- KEYS[1] hash: number, hash and node of the configuration taken up last
-- ARGV    hash of a configuration, id of the node that takes it up
-- reply   the configuration's number
-- One step: the number grows by one exactly when the configuration is another.
local last = redis.call('HMGET', KEYS[1], 'number', 'hash')
if last[2] == ARGV[1] then
  return tonumber(last[1])
end
redis.call('HSET', KEYS[1], 'hash', ARGV[1], 'node', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'number', 1)
