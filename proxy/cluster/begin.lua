-- KEYS[1] hash: the push that is under way
-- KEYS[2] hash: number and hash of the configuration taken up last
-- ARGV    id of the push, hash of what is pushed, its bundle, author, id of the
--         node that pushes, milliseconds that a push lives without a sign, channel
-- reply   {1, number of the configuration taken up last, milliseconds now}, or
--         {0, author, node, milliseconds since when} of the push under way
-- One step: there is one push at a time.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local other = redis.call('HMGET', KEYS[1], 'id', 'author', 'node', 'at')
if other[1] and other[1] ~= ARGV[1] then
  return {0, other[2], other[3], now - other[4]}
end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'hash', ARGV[2], 'bundle', ARGV[3], 'author', ARGV[4],
  'node', ARGV[5], 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('PUBLISH', ARGV[7], 'begin')
return {1, tonumber(redis.call('HGET', KEYS[2], 'number')) or 0, now}
