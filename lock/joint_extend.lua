-- KEYS     hashes as in reentrant_lock.lua
-- ARGV     owner, lease in ms
-- reply    1: all are held for at least the lease; {}: the owner does not hold all
local held = 0
for _, key in ipairs(KEYS) do
  if redis.call('HEXISTS', key, ARGV[1]) == 1 then
    if redis.call('PTTL', key) < tonumber(ARGV[2]) then redis.call('PEXPIRE', key, ARGV[2]) end
    held = held + 1
  end
end
if held < #KEYS then return {} end
return 1
