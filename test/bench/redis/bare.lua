-- bare: a token bucket's commands on its value and its log, and little else: the least that
-- this layout costs, for all windows of a call.
local call, t, limits = redis.call, redis.call('TIME'), {}
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local text, reply = string.format('%.0f', now), { now }
for i = 1, (#ARGV - 1) / 2 do
  local ttl = ARGV[2 * i]
  limits[i] = { n = tonumber(ARGV[2 * i - 1]), ttl = ttl, old = string.format('%.0f', now - ttl) }
end
for i = 1, #KEYS / 2 do
  local value, log, r, l = KEYS[2 * i - 1], KEYS[2 * i], #reply, limits[(i - 1) % #limits + 1]
  local n, at = l.n, 13 * math.floor((i - 1) / #limits)
  local left = tonumber(call('GET', value)) or n
  if left < n then
    for _, m in ipairs(call('ZRANGEBYSCORE', log, '-inf', l.old)) do left = left + string.byte(m, -4) end
  end
  if left > 0 then
    if left < n then call('ZREMRANGEBYSCORE', log, '-inf', l.old) end
    call('ZADD', log, text, string.sub(ARGV[#ARGV], at + 1, at + 13))
    call('PEXPIRE', log, l.ttl)
    call('SET', value, left - 1, 'PX', l.ttl)
    reply[r + 1], reply[r + 2], reply[r + 3] = 1, left - 1, 0
  else
    reply[r + 1], reply[r + 2], reply[r + 3] = 0, 0, call('ZRANGE', log, 0, 0, 'WITHSCORES')[2] + l.ttl - now
  end
end
return reply
