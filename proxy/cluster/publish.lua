-- KEYS[1] hash: number, hash and node of the configuration taken up last
-- KEYS[2] hash: limit -> its definition
-- KEYS[3] sorted set: limit -> milliseconds when it left the definitions
-- ARGV    hash of a configuration, id of the node that takes it up, the number
--         that this node has seen last, milliseconds that configurations are
--         remembered, the source of the node's configurations, then of each limit
--         its name and its definition
-- reply   1 and the configuration's number, or 0 and the number that it was not
--         written over, or 2 and the number that was pushed to this node
-- One step: a configuration that is not the last one gets the next number, and
-- its definitions take the place of all others, unless somebody has published
-- since the node looked.
local last = redis.call('HMGET', KEYS[1], 'number', 'hash', 'pushed')
local number = tonumber(last[1]) or 0
if last[2] == ARGV[1] then
  return {1, number}
end
if last[3] and ARGV[5] == 'redis' then
  return {2, tonumber(last[3])}
end
if number ~= tonumber(ARGV[3]) then
  return {0, number}
end
number = number + 1
redis.call('HSET', KEYS[1], 'number', string.format('%.0f', number), 'hash', ARGV[1], 'node', ARGV[2])
define(KEYS[2], KEYS[3], 6, ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, number}
