-- KEYS     the count; the mark of this call
-- ARGV     ms that the mark lives, PUBLISH or SPUBLISH, channel
-- reply    n: what is left
-- atomic   count, and at zero open and tell. Run twice, it counts once.
local left = tonumber(redis.call('GET', KEYS[1]) or 0)
if left <= 0 or not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) then return left end
left = redis.call('DECR', KEYS[1])
if left <= 0 then
  redis.call('DEL', KEYS[1])
  redis.call(ARGV[2], ARGV[3], '0')
end
return left
