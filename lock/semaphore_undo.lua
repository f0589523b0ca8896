-- KEYS     the number of free permits; the mark of the call to undo
-- ARGV     permits, PUBLISH or SPUBLISH, channel
-- reply    1: given back; {}: the call had taken nothing
if redis.call('DEL', KEYS[2]) == 0 then return {} end
redis.call(ARGV[2], ARGV[3], string.format('%.0f', redis.call('INCRBY', KEYS[1], ARGV[1])))
return 1
