-- KEYS     as in fair_lock.lua
-- ARGV     owner, number of holds left or 'all' to take it from anybody, PUBLISH or
--          SPUBLISH, channel without the waiter's name, ms between two waiters
-- reply    {}: there was nothing to give back; n: done, n listeners were told
-- atomic   give back, or leave the queue; then tell the first living waiter that
--          the lock is free, if it is. Run twice, it changes nothing more.
local hash, queue, times, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner = ARGV[1]
if ARGV[2] == 'all' then
  if redis.call('DEL', hash) == 0 then return {} end
elseif ARGV[2] ~= '0' then
  if redis.call('HEXISTS', hash, owner) == 0 then return {} end
  redis.call('HSET', hash, owner, ARGV[2])
  return 0
elseif redis.call('HDEL', hash, owner) == 0 then
  if not redis.call('ZSCORE', times, owner) then return {} end
  local behind = false
  for _, waiter in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if behind then redis.call('ZINCRBY', times, '-' .. ARGV[5], waiter) end
    behind = behind or waiter == owner
  end
  redis.call('LREM', queue, 0, owner)
  redis.call('ZREM', times, owner)
  redis.call('ZREM', alive, owner)
  if redis.call('EXISTS', hash) == 1 then return 0 end
end

local head = redis.call('LINDEX', queue, 0)
if not head then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
repeat
  local life = redis.call('ZSCORE', alive, head) or redis.call('ZSCORE', times, head) or 0
  if tonumber(life) > now then
    return redis.call(ARGV[3], ARGV[4] .. ':' .. head, '0')
  end
  redis.call('LPOP', queue)
  redis.call('ZREM', times, head)
  redis.call('ZREM', alive, head)
  head = redis.call('LINDEX', queue, 0)
until not head
return 0
