-- KEYS     the lock's hash: owner -> number of holds; the counter of tokens
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    {1, token}: held; {0, ms}: another's for so long (-1: without end, -2: ours has ended)
-- atomic   look, take, count and set the end. Run twice, it changes nothing
--          more: an owner that holds the lock keeps its token.
local ttl = redis.call('PTTL', KEYS[1])
local token
if ttl == -2 then
  if ARGV[2] ~= '1' then return {0, -2} end
  token = redis.call('INCR', KEYS[2])
elseif redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {0, ttl}
else
  token = tonumber(redis.call('GET', KEYS[2]) or redis.call('INCR', KEYS[2]))
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ttl < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {1, token}
