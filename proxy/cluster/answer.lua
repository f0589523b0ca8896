-- KEYS[1] hash: the push that is under way
-- ARGV    id of a push, id of a node, its answer
-- reply   1 if that push is under way, else 0
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'answer:' .. ARGV[2], ARGV[3])
return 1
