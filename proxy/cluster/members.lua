-- KEYS[1] sorted set: node id -> milliseconds of its last sign of life
-- KEYS[2] hash: node id -> what it says of itself
-- ARGV    milliseconds that a node lives without a sign
-- reply   for each node that is alive: id, milliseconds of its last sign, what it says
local t = redis.call('TIME')
local since = t[1] * 1000 + math.floor(t[2] / 1000) - ARGV[1]
local alive = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', since), '+inf', 'WITHSCORES')
local reply = {}
for i = 1, #alive, 2 do
  local says = redis.call('HGET', KEYS[2], alive[i])
  if says then
    reply[#reply + 1] = {alive[i], alive[i + 1], says}
  end
end
return reply
