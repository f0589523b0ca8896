-- KEYS     hashes as in reentrant_lock.lua
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, the channel of each
-- reply    {}: the owner did not hold all; n: done, n listeners were told
-- atomic   give back all that the owner holds and tell. Run twice, it changes
--          nothing more.
local held, told = 0, 0
for i, key in ipairs(KEYS) do
  if ARGV[2] ~= '0' then
    if redis.call('HEXISTS', key, ARGV[1]) == 1 then
      redis.call('HSET', key, ARGV[1], ARGV[2])
      held = held + 1
    end
  elseif redis.call('HDEL', key, ARGV[1]) == 1 then
    told = told + redis.call(ARGV[3], ARGV[3 + i], '0')
    held = held + 1
  end
end
if held < #KEYS then return {} end
return told
