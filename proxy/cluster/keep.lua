-- KEYS[1] hash: the push that is under way
-- KEYS[2] sorted set: node id -> milliseconds of its last sign of life
-- KEYS[3] hash: node id -> what it says of itself
-- ARGV    id of the push, milliseconds that a push lives without a sign,
--         milliseconds that a node does
-- reply   for each node that is alive its id, its answer or '', and what it says
--         of itself; or nil when another push, or none, is under way
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return false
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local t = redis.call('TIME')
local since = t[1] * 1000 + math.floor(t[2] / 1000) - ARGV[3]
local alive = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. string.format('%.0f', since), '+inf')
local reply = {}
for i = 1, #alive do
  local answer = redis.call('HGET', KEYS[1], 'answer:' .. alive[i]) or ''
  reply[i] = {alive[i], answer, redis.call('HGET', KEYS[3], alive[i]) or '{}'}
end
return reply
