-- KEYS     the lock's hash: owner -> number of holds; the last token
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    token: held; {ms}: another's for so long (-1: without end, -2: ours has ended)
-- atomic   look, take, count and set the end. Run twice, it changes nothing
--          more: an owner that holds the lock keeps its token. A new token is
--          one more than the last, and not below the server's clock in µs, so
--          that the tokens go on rising when the last one was lost.
local call, key, owner = redis.call, KEYS[1], ARGV[1]
local ttl = call('PTTL', key)
local token
if ttl == -2 then
  if ARGV[2] ~= '1' then return {-2} end
elseif call('HEXISTS', key, owner) == 0 then
  return {ttl}
else
  token = tonumber(call('GET', KEYS[2]))
end
if not token then
  local clock = call('TIME')
  local micro = clock[2] -- joined as texts: to print a number takes a third of a µs
  if #micro < 6 then micro = string.rep('0', 6 - #micro) .. micro end
  local now = clock[1] .. micro
  token = tonumber(now)
  local last = call('SET', KEYS[2], now, 'GET') -- all digits: below 2^53
  if last and tonumber(last) >= token then
    token = last + 1
    call('SET', KEYS[2], token)
  end
end
call('HSET', key, owner, ARGV[2])
if ttl == -2 or ttl < tonumber(ARGV[3]) then call('PEXPIRE', key, ARGV[3]) end
return token
