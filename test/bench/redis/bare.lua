-- bare: a token bucket's commands on its value and its log, and little else.
local call, n, ttl, t = redis.call, tonumber(ARGV[1]), ARGV[2], redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local text, old = string.format('%.0f', now), string.format('%.0f', now - ttl)
local reply = { now }
for i = 1, #KEYS / 2 do
  local value, log, r = KEYS[2 * i - 1], KEYS[2 * i], #reply
  local left = tonumber(call('GET', value)) or n
  if left < n then
    for _, m in ipairs(call('ZRANGEBYSCORE', log, '-inf', old)) do left = left + string.byte(m, -4) end
  end
  if left > 0 then
    if left < n then call('ZREMRANGEBYSCORE', log, '-inf', old) end
    call('ZADD', log, text, string.sub(ARGV[3], 13 * i - 12, 13 * i))
    call('PEXPIRE', log, ttl)
    call('SET', value, left - 1, 'PX', ttl)
    reply[r + 1], reply[r + 2], reply[r + 3] = 1, left - 1, 0
  else
    reply[r + 1], reply[r + 2], reply[r + 3] = 0, 0, call('ZRANGE', log, 0, 0, 'WITHSCORES')[2] + ttl - now
  end
end
return reply
