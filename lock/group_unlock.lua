-- KEYS[1]  the group's hash, as in group_lock.lua
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel, the values
-- reply    {}: the owner did not hold all; n: done, n listeners were told
-- atomic   give back what the owner has and tell; what others took over stays
--          theirs. The end of the lease stays as it is. Run twice, it changes
--          nothing more.
local call, key, owner, left = redis.call, KEYS[1], ARGV[1], ARGV[2]
local held = 0
for i = 5, #ARGV do
  if call('HGET', key, ARGV[i]) == owner then held = held + 1 end
end
local all = held == #ARGV - 4
if left ~= '0' then
  if not all then return {} end
  for i = 5, #ARGV do call('HSET', key, ARGV[i] .. ':' .. owner .. ':lock_count', left) end
  return 0
end
for i = 5, #ARGV do
  local end_field, count_field = ARGV[i] .. ':' .. owner .. ':expire_time', ARGV[i] .. ':' .. owner .. ':lock_count'
  if all or call('HGET', key, ARGV[i]) == owner then
    call('HDEL', key, ARGV[i], end_field, count_field)
  else
    call('HDEL', key, end_field, count_field)
  end
end
if held == 0 then return {} end
local told = call(ARGV[3], ARGV[4], '0')
if not all then return {} end
return told
