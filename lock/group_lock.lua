-- KEYS[1]  the group's hash, in which a value that is held has three fields: value ->
--          owner, value:owner:expire_time -> ms since 1970, value:owner:lock_count ->
--          number of holds
-- ARGV     owner, number of holds after this call, lease in ms, the values
-- reply    0: all are held; {ms}: others hold some for so long; {-2}: ours has ended
-- atomic   look at all, then take all or none. What has expired is free, and what
--          its holder left is removed. Run twice, it changes nothing more: the
--          number is absolute, and only the first hold can take a value.
local call, key, owner, count, lease = redis.call, KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local ttl = call('PTTL', key)
local clock = call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local stop = string.format('%d%03d', (now + lease) / 1000, (now + lease) % 1000) -- cheaper than %.0f

if ttl == -2 then
  if count ~= '1' then return {-2} end
  for i = 4, #ARGV do
    local value = ARGV[i]
    call('HSET', key, value, owner, value .. ':' .. owner .. ':expire_time', stop, value .. ':' .. owner .. ':lock_count', count)
  end
  call('PEXPIREAT', key, stop)
  return 0
end

local holders, ends, last, ours = {}, {}, 0, true
for i = 4, #ARGV do
  local holder = call('HGET', key, ARGV[i])
  local over = 0
  if holder then over = tonumber(call('HGET', key, ARGV[i] .. ':' .. holder .. ':expire_time') or 0) or 0 end
  if holder ~= owner then
    ours = false
    if holder and over > last then last = over end
  end
  holders[i], ends[i] = holder, over
end
if last > now then
  if ttl >= 0 and ttl < last - now then return {ttl} end
  return {last - now}
end
if not ours and count ~= '1' then return {-2} end
for i = 4, #ARGV do
  local held = ARGV[i] .. ':' .. owner
  local over = stop
  if holders[i] == owner then
    if ends[i] > now + lease then over = string.format('%.0f', ends[i]) end
  elseif holders[i] then
    local dead = ARGV[i] .. ':' .. holders[i]
    call('HDEL', key, dead .. ':expire_time', dead .. ':lock_count')
  end
  call('HSET', key, ARGV[i], owner, held .. ':expire_time', over, held .. ':lock_count', count)
end
if ttl ~= -1 and ttl < lease then call('PEXPIREAT', key, stop) end
return 0
