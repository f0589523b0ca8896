-- KEYS     the lock's hash: owner -> number of holds; the list of waiters; the
--          sorted set waiter -> ms after which it may be passed over; the sorted
--          set waiter -> ms until which it says that it lives
-- ARGV     owner, number of holds after this call, lease in ms, 1 to wait in the
--          queue, ms that a waiter lives without a word, ms between two waiters,
--          PUBLISH or SPUBLISH, channel without the waiter's name
-- reply    0: held; {ms}: look again after so long (-1: when told, -2:
--          ours has ended)
-- atomic   pass over the dead, look, and take or queue; then tell the first
--          living waiter if the lock is free and was offered to a dead one. By the
--          server's clock. Run twice, it changes nothing more.
local hash, queue, times, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, count, lease = ARGV[1], ARGV[2], ARGV[3]
local ttl = redis.call('PTTL', hash)
if ttl ~= -2 and redis.call('HEXISTS', hash, owner) == 1 then
  redis.call('HSET', hash, owner, count)
  if ttl < tonumber(lease) then redis.call('PEXPIRE', hash, lease) end
  return 0
end
if count ~= '1' then return {-2} end

local head = redis.call('LINDEX', queue, 0)
if not head and ttl == -2 then
  redis.call('HSET', hash, owner, '1')
  redis.call('PEXPIRE', hash, lease)
  return 0
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function number(n) return string.format('%.0f', n) end
local first = head
while head and head ~= owner do
  local life = redis.call('ZSCORE', alive, head) or redis.call('ZSCORE', times, head) or 0
  if tonumber(life) > now then break end
  redis.call('LPOP', queue)
  redis.call('ZREM', times, head)
  redis.call('ZREM', alive, head)
  head = redis.call('LINDEX', queue, 0)
end

if ttl == -2 and (not head or head == owner) then
  if head then
    redis.call('LPOP', queue)
    redis.call('ZREM', times, owner)
    redis.call('ZREM', alive, owner)
    for _, waiter in ipairs(redis.call('ZRANGE', times, 0, -1)) do
      redis.call('ZINCRBY', times, '-' .. ARGV[6], waiter)
    end
  end
  redis.call('HSET', hash, owner, '1')
  redis.call('PEXPIRE', hash, lease)
  return 0
end

if head ~= first and head and ttl == -2 then redis.call(ARGV[7], ARGV[8] .. ':' .. head, '0') end
if ARGV[4] == '1' then
  local gap = tonumber(ARGV[6])
  local time = tonumber(redis.call('ZSCORE', times, owner) or 0)
  local place = redis.call('LPOS', queue, owner)
  if not place then
    local last = redis.call('LINDEX', queue, -1)
    local before = last and tonumber(redis.call('ZSCORE', times, last) or 0) or now + ttl
    time = math.max(before, now) + gap
    redis.call('RPUSH', queue, owner)
  elseif time < now + (place + 0.5) * gap then
    time = now + (place + 1) * gap
  end
  redis.call('ZADD', times, number(time), owner)
  redis.call('ZADD', alive, number(now + ARGV[5]), owner)
  local rest = number(time - now + lease)
  for _, key in ipairs({queue, times, alive}) do
    if redis.call('PTTL', key) < tonumber(rest) then redis.call('PEXPIRE', key, rest) end
  end
end
if ttl > 0 and (not head or head == owner) then return {ttl} end
return {-1}
