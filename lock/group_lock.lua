-- KEYS[1]  the group's hash, in which a value that is held has three fields: value ->
--          owner, value:owner:expire_time -> ms since 1970, value:owner:lock_count ->
--          number of holds
-- ARGV     owner, number of holds after this call, lease in ms, the values
-- reply    0: all are held; {ms}: others hold some for so long; {-2}: ours has ended
-- atomic   look at all, then take all or none. What has expired is free, and what
--          its holder left is removed. Run twice, it changes nothing more: the
--          number is absolute, and only the first hold can take a value.
local key, owner, lease = KEYS[1], ARGV[1], tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local ttl = redis.call('PTTL', key)
local holders, ends, last, ours = {}, {}, 0, true
for i = 4, #ARGV do
  local holder = redis.call('HGET', key, ARGV[i])
  local stop = 0
  if holder then stop = tonumber(redis.call('HGET', key, ARGV[i] .. ':' .. holder .. ':expire_time') or 0) or 0 end
  if holder ~= owner then
    ours = false
    if holder and stop > last then last = stop end
  end
  holders[i], ends[i] = holder, stop
end
if last > now then
  if ttl >= 0 and ttl < last - now then return {ttl} end
  return {last - now}
end
if not ours and ARGV[2] ~= '1' then return {-2} end
for i = 4, #ARGV do
  local held = ARGV[i] .. ':' .. owner
  local stop = now + lease
  if holders[i] == owner then
    if ends[i] > stop then stop = ends[i] end
  elseif holders[i] then
    local dead = ARGV[i] .. ':' .. holders[i]
    redis.call('HDEL', key, dead .. ':expire_time', dead .. ':lock_count')
  end
  redis.call('HSET', key, ARGV[i], owner, held .. ':expire_time', stop, held .. ':lock_count', ARGV[2])
end
if ttl ~= -1 and ttl < lease then redis.call('PEXPIRE', key, lease) end
return 0
