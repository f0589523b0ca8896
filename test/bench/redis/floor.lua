-- floor: the least of any limit that keeps something of each key for a time: every
-- decision reads its state and writes it. A count, here, of the last window at most.
local call, n, ttl, t = redis.call, tonumber(ARGV[1]), ARGV[2], redis.call('TIME')
local reply = { t[1] * 1000 + math.floor(t[2] / 1000) }
for i = 1, #KEYS do
  local taken, r = tonumber(call('GET', KEYS[i]) or 0), #reply
  if taken < n then
    call('SET', KEYS[i], taken + 1, 'PX', ttl)
    reply[r + 1], reply[r + 2], reply[r + 3] = 1, n - taken - 1, 0
  else
    call('SET', KEYS[i], taken, 'PX', ttl)
    reply[r + 1], reply[r + 2], reply[r + 3] = 0, 0, 1
  end
end
return reply
