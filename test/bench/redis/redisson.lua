-- redisson: the commands that one decision of a Redisson limiter runs, in its order,
-- on its layout: config hash, value and permits. Written from their effects.
local call, n, id = redis.call, tonumber(ARGV[1]), ARGV[3]
local t = call('TIME') -- its client sends the time instead
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local rate = call('HGET', KEYS[1], 'rate')
local interval = call('HGET', KEYS[1], 'interval')
local kind = call('HGET', KEYS[1], 'type')
assert(rate and interval and kind, 'not initialized')
local value, permits = KEYS[2], KEYS[4]
if kind == '1' then value, permits = KEYS[3], KEYS[5] end
assert(tonumber(rate) >= n, 'more than the rate')
local left, answer = call('GET', value), nil
if left then
  local gone = call('ZRANGEBYSCORE', permits, 0, now - interval)
  local back = 0
  for _, m in ipairs(gone) do
    local _, count = struct.unpack('Bc0I', m)
    back = back + count
  end
  if back > 0 then
    call('ZREMRANGEBYSCORE', permits, 0, now - interval)
    if tonumber(left) + back > tonumber(rate) then
      left = tonumber(rate) - call('ZCARD', permits)
    else
      left = tonumber(left) + back
    end
    call('SET', value, left)
  end
  if tonumber(left) < n then
    local first = call('ZRANGE', permits, 0, 0, 'WITHSCORES')
    answer = 3 + interval - (now - tonumber(first[2]))
  else
    call('ZADD', permits, now, struct.pack('Bc0I', #id, id, n))
    call('DECRBY', value, n)
  end
else
  call('SET', value, rate)
  call('ZADD', permits, now, struct.pack('Bc0I', #id, id, n))
  call('DECRBY', value, n)
end
local ttl = call('PTTL', KEYS[1])
if ttl > 0 then
  call('PEXPIRE', value, ttl)
  call('PEXPIRE', permits, ttl)
end
return answer
