-- KEYS     the number of free permits; the sorted set permit -> ms when it comes
--          back by itself
-- ARGV     permit (16 bytes), lease in ms, PUBLISH or SPUBLISH, channel
-- reply    0: taken; {ms}: none is free, one may be after so long (-1: unknown)
-- atomic   take back what is over, look and take, by the server's clock. Run
--          twice, it takes once.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function number(n) return string.format('%.0f', n) end
local back = number(now + ARGV[2])
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  redis.call('ZADD', KEYS[2], 'GT', back, ARGV[1])
  return 0
end
local free = tonumber(redis.call('GET', KEYS[1]) or 0)
local over = redis.call('ZREMRANGEBYSCORE', KEYS[2], 0, number(now))
if over > 0 then
  free = redis.call('INCRBY', KEYS[1], over)
  if free > 1 then redis.call(ARGV[3], ARGV[4], number(free - 1)) end
end
if free < 1 then
  local next = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if #next == 0 then return {-1} end
  return {next[2] - now}
end
redis.call('DECR', KEYS[1])
redis.call('ZADD', KEYS[2], back, ARGV[1])
local ttl = redis.call('PTTL', KEYS[1])
if ttl > 0 then redis.call('PEXPIRE', KEYS[2], ttl) end
return 0
