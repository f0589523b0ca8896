-- KEYS[1]  the lock's hash
-- ARGV     owner, number of holds left, PUBLISH or SPUBLISH, channel
-- reply    {}: the owner held nothing; n: done, n listeners were told
-- atomic   give back and tell. The end of the lease stays as it is. Run twice,
--          it changes nothing more.
if ARGV[2] ~= '0' then
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {} end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  return 0
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return {} end
return redis.call(ARGV[3], ARGV[4], '0')
