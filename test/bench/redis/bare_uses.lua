-- bare_uses: the commands of a log of uses, in which each value is counted, and little
-- else: the least that distinct's layout costs, for all windows of a call.
local call, t, limits = redis.call, redis.call('TIME'), {}
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local text, reply = string.format('%.0f', now), { now }
for i = 1, (#ARGV - 1) / 2 do
  local ttl = ARGV[2 * i]
  local old = string.format('%.0f', now - ttl)
  limits[i] = { n = tonumber(ARGV[2 * i - 1]), ttl = ttl, old = old, since = '(' .. old }
end
for i = 1, #KEYS do
  local log, r, l = KEYS[i], #reply, limits[(i - 1) % #limits + 1]
  local at = 16 * math.floor((i - 1) / #limits)
  local left = l.n - #call('ZRANGEBYSCORE', log, l.since, '+inf')
  if left > 0 then
    call('ZREMRANGEBYSCORE', log, '-inf', l.old)
    call('ZADD', log, text, string.sub(ARGV[#ARGV], at + 1, at + 16))
    call('PEXPIRE', log, l.ttl)
  end
  reply[r + 1], reply[r + 2], reply[r + 3] = left > 0 and 1 or 0, left, 0
end
return reply
