-- KEYS[1]  the lock's hash
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel
-- reply    {0, 0}: the owner held nothing; {1, n}: done, n listeners were told
-- atomic   give back and tell. The end of the lease stays as it is. Run twice,
--          it changes nothing more.
if ARGV[2] ~= '0' then
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {0, 0} end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  return {1, 0}
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return {0, 0} end
return {1, redis.call(ARGV[3], ARGV[4], '0')}
