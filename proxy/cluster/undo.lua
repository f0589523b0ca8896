-- KEYS[1] hash: the push that is under way
-- ARGV    id of a push, channel
-- reply   1 if that push was under way, else 0
-- That push, and no other, is over.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], 'undo')
return 1
