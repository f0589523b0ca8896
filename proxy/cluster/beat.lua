-- KEYS[1] sorted set: node id -> milliseconds of its last sign of life
-- KEYS[2] hash: node id -> what it says of itself
-- KEYS[3] hash: number, hash and node of the configuration taken up last
-- KEYS[4] hash: the definitions of limits
-- KEYS[5] hash: id of a lost node -> milliseconds of its last sign of life, a blank, and what it said
-- ARGV    id of the node, milliseconds that a node lives without a sign, what the
--         node says of itself, the hash of its configuration, milliseconds that
--         configurations are remembered, milliseconds that lost nodes are, milliseconds
--         since when the node has been heard without a pause
-- reply   how many nodes are alive, how many of them serve another configuration, the
--         number of the configuration taken up last, or 0, and how many nodes are lost
-- One step, by Redis's clock: the node is noted, silent ones are lost. After an outage, in which
-- nobody was heard, the others have as long to be heard again as a node lives.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local id, life = ARGV[1], tonumber(ARGV[2])
local since = now - life
redis.call('ZADD', KEYS[1], string.format('%.0f', now), id)
redis.call('HSET', KEYS[2], id, ARGV[3])
redis.call('HDEL', KEYS[5], id)
local others, alive = 0, 0
local members = redis.call('HGETALL', KEYS[2])
for i = 1, #members, 2 do
  local name, says = members[i], members[i + 1]
  local seen = tonumber(redis.call('ZSCORE', KEYS[1], name) or 0)
  if seen > now then -- the clock was set back
    seen = now
    redis.call('ZADD', KEYS[1], string.format('%.0f', now), name)
  end
  if seen > since then
    alive = alive + 1
    if not string.find(says, '"hash":"' .. ARGV[4] .. '"', 1, true) then
      others = others + 1
    end
  elseif tonumber(ARGV[7]) > life then
    redis.call('ZREM', KEYS[1], name)
    redis.call('HDEL', KEYS[2], name)
    redis.call('HSET', KEYS[5], name, string.format('%.0f ', seen) .. says)
  end
end
local lost = redis.call('HGETALL', KEYS[5])
for i = 1, #lost, 2 do
  if tonumber(string.match(lost[i + 1], '^%d+') or 0) < now - ARGV[6] then
    redis.call('HDEL', KEYS[5], lost[i])
  end
end
for i = 1, 2 do redis.call('PEXPIRE', KEYS[i], ARGV[6]) end
for i = 3, 4 do redis.call('PEXPIRE', KEYS[i], ARGV[5]) end
redis.call('PEXPIRE', KEYS[5], ARGV[6])
return {alive, others, tonumber(redis.call('HGET', KEYS[3], 'number')) or 0, redis.call('HLEN', KEYS[5])}
