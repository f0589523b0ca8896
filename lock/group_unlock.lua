-- KEYS[1]  the group's hash, as in group_lock.lua
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel, the values
-- reply    {}: the owner did not hold all; n: done, n listeners were told
-- atomic   give back what the owner has and tell; what others took over stays
--          theirs. The end of the lease stays as it is. Run twice, it changes
--          nothing more.
local key, owner = KEYS[1], ARGV[1]
local all, some = true, false
for i = 5, #ARGV do
  if redis.call('HGET', key, ARGV[i]) == owner then some = true else all = false end
end
if ARGV[2] ~= '0' then
  if not all then return {} end
  for i = 5, #ARGV do redis.call('HSET', key, ARGV[i] .. ':' .. owner .. ':lock_count', ARGV[2]) end
  return 0
end
for i = 5, #ARGV do
  local held = ARGV[i] .. ':' .. owner
  if redis.call('HGET', key, ARGV[i]) == owner then redis.call('HDEL', key, ARGV[i]) end
  redis.call('HDEL', key, held .. ':expire_time', held .. ':lock_count')
end
local told = 0
if some then told = redis.call(ARGV[3], ARGV[4], '0') end
if not all then return {} end
return told
