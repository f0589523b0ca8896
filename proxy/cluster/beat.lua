-- KEYS[1] sorted set: node id -> milliseconds of its last sign of life
-- KEYS[2] hash: node id -> what it says of itself
-- KEYS[3] hash: number, hash and node of the configuration taken up last
-- KEYS[4] hash: the definitions of limits
-- ARGV    id of the node, milliseconds that a node lives without a sign, what the
--         node says of itself, the hash of its configuration, milliseconds that
--         configurations are remembered
-- reply   how many nodes are alive, how many of them serve another configuration, the
--         number of the configuration taken up last, or 0
-- One step, by Redis's clock: the node is noted, silent ones are dropped.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local id, life = ARGV[1], tonumber(ARGV[2])
redis.call('ZADD', KEYS[1], string.format('%.0f', now), id)
redis.call('HSET', KEYS[2], id, ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - life))
redis.call('PEXPIRE', KEYS[1], life)
redis.call('PEXPIRE', KEYS[2], life)
redis.call('PEXPIRE', KEYS[3], ARGV[5])
redis.call('PEXPIRE', KEYS[4], ARGV[5])
local others = 0
local members = redis.call('HGETALL', KEYS[2])
for i = 1, #members, 2 do
  if not redis.call('ZSCORE', KEYS[1], members[i]) then
    redis.call('HDEL', KEYS[2], members[i])
  elseif not string.find(members[i + 1], '"hash":"' .. ARGV[4] .. '"', 1, true) then
    others = others + 1
  end
end
return {redis.call('ZCARD', KEYS[1]), others, tonumber(redis.call('HGET', KEYS[3], 'number')) or 0}
