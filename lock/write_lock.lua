-- KEYS[1]  the lock's hash, as in read_lock.lua
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    0: held; {ms}: others' for so long (-1: without end, -2: ours
--          has ended, -3: the owner reads, so that it would wait for itself)
-- atomic   look and take. The lease is never added to what is left. Run twice,
--          it changes nothing more.
local call, key, field = redis.call, KEYS[1], ARGV[1] .. ':write'
local ttl = call('PTTL', key)
if ttl == -2 then
  if ARGV[2] ~= '1' then return {-2} end
elseif call('HEXISTS', key, field) == 0 then
  if call('HEXISTS', key, ARGV[1]) == 1 then return {-3} end
  return {ttl}
end
call('HSET', key, 'mode', 'write', field, ARGV[2])
if ttl == -2 or ttl < tonumber(ARGV[3]) then call('PEXPIRE', key, ARGV[3]) end
return 0
