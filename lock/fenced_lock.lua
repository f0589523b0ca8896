-- KEYS     the lock's hash: owner -> number of holds; the last token
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    token: held; {ms}: another's for so long (-1: without end, -2: ours has ended)
-- atomic   look, take, count and set the end. Run twice, it changes nothing
--          more: an owner that holds the lock keeps its token. A new token is
--          one more than the last, and not below the server's clock in µs, so
--          that the tokens go on rising when the last one was lost.
local ttl = redis.call('PTTL', KEYS[1])
local token
if ttl == -2 then
  if ARGV[2] ~= '1' then return {-2} end
elseif redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {ttl}
else
  token = tonumber(redis.call('GET', KEYS[2]))
end
if not token then
  local clock = redis.call('TIME')
  token = clock[1] * 1000000 + clock[2]
  local last = redis.call('SET', KEYS[2], token, 'GET') -- all digits: below 2^53
  if last and tonumber(last) >= token then
    token = last + 1
    redis.call('SET', KEYS[2], token)
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ttl < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return token
