-- KEYS[1] hash: number, hash and node of the configuration taken up last, and
--         number (pushed) and id (push) of the one pushed last
-- KEYS[2] hash: limit -> its definition
-- KEYS[3] sorted set: limit -> milliseconds when it left the definitions
-- KEYS[4] hash: the push that is under way
-- KEYS[5] list: what was pushed, the last first
-- KEYS[6] sorted set: node id -> milliseconds of its last sign of life
-- ARGV    id of the push, its hash, id of the node that pushes, the number upon
--         which it is built, milliseconds that configurations are remembered,
--         milliseconds that a node lives without a sign, what becomes the first of
--         the list, how long the list may be, channel, then of each limit its name
--         and its definition
-- reply   {1, ''} when it is done, also when it was before; {0, id of a node that
--         has not agreed}; {-1, ''} when another push came first or time ran out
-- One step: the next number, the definitions, the history and the end of the push,
-- if all nodes that live have agreed and nobody has published meanwhile.
local last = redis.call('HMGET', KEYS[1], 'number', 'push')
if last[2] == ARGV[1] then
  return {1, ''}
end
local number = tonumber(last[1]) or 0
if redis.call('HGET', KEYS[4], 'id') ~= ARGV[1] or number ~= tonumber(ARGV[4]) then
  return {-1, ''}
end
local t = redis.call('TIME')
local since = t[1] * 1000 + math.floor(t[2] / 1000) - ARGV[6]
local alive = redis.call('ZRANGEBYSCORE', KEYS[6], '(' .. string.format('%.0f', since), '+inf')
for i = 1, #alive do
  if redis.call('HGET', KEYS[4], 'answer:' .. alive[i]) ~= 'ok' then
    return {0, alive[i]}
  end
end
number = string.format('%.0f', number + 1)
redis.call('HSET', KEYS[1], 'number', number, 'hash', ARGV[2], 'node', ARGV[3], 'pushed', number, 'push', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
define(KEYS[2], KEYS[3], 10, ARGV[5])
redis.call('LPUSH', KEYS[5], ARGV[7])
redis.call('LTRIM', KEYS[5], 0, ARGV[8] - 1)
redis.call('PEXPIRE', KEYS[5], ARGV[5])
redis.call('DEL', KEYS[4])
redis.call('PUBLISH', ARGV[9], 'commit')
return {1, ''}
