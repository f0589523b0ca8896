-- KEYS     the number of free permits; the mark of this call
-- ARGV     permits, ms that the mark lives, PUBLISH or SPUBLISH, channel
-- reply    1: given; {}: this call had given them before
-- atomic   give and tell the new number. Run twice, it gives once.
if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[2]) then return {} end
redis.call(ARGV[3], ARGV[4], string.format('%.0f', redis.call('INCRBY', KEYS[1], ARGV[1])))
return 1
