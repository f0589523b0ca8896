-- KEYS     the lock's hash: 'mode' -> 'read' or 'write', reader -> number of its
--          holds, 'owner:write' -> number of the writer's; the key of this hold
-- ARGV     owner, number of holds after this call, lease in ms
-- reply    0: held; {ms}: a writer's for so long (-1: without end, -2: ours has ended)
-- atomic   look and take. Each hold has a key of its own beside the hash, so
--          that the hash can end with the last living reader. Run twice, it
--          changes nothing more.
local call, key, owner = redis.call, KEYS[1], ARGV[1]
local ttl = call('PTTL', key)
if ttl == -2 then
  if ARGV[2] ~= '1' then return {-2} end
  call('HSET', key, 'mode', 'read', owner, '1')
else
  local mode = call('HGET', key, 'mode')
  if mode ~= 'read' and call('HEXISTS', key, owner .. ':write') == 0 then
    return {ttl}
  elseif ARGV[2] ~= '1' and call('HEXISTS', key, owner) == 0 then
    return {-2}
  end
  call('HSET', key, owner, ARGV[2])
end
local lease = ARGV[3]
call('SET', KEYS[2], '1', 'PX', lease)
if ttl == -2 or ttl < tonumber(lease) then call('PEXPIRE', key, lease) end
return 0
