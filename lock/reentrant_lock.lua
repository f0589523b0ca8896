-- KEYS[1]  the lock's hash: owner -> number of holds
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    0: held; {ms}: another's for so long (-1: without end, -2: ours has ended)
-- atomic   look, take and set the end. Run twice, it changes nothing more: the
--          number is absolute, and only the first hold can create the hash.
local call, key, owner = redis.call, KEYS[1], ARGV[1]
local ttl = call('PTTL', key)
if ttl == -2 then
  if ARGV[2] ~= '1' then return {-2} end
elseif call('HEXISTS', key, owner) == 0 then
  return {ttl}
end
call('HSET', key, owner, ARGV[2])
if ttl == -2 or ttl < tonumber(ARGV[3]) then call('PEXPIRE', key, ARGV[3]) end
return 0
