-- KEYS     the number of free permits; the mark of this call
-- ARGV     permits, ms that the mark lives
-- reply    1: taken; {}: not enough, or no such semaphore
-- atomic   look and take. Run twice, it takes once: the mark tells.
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
local free = tonumber(redis.call('GET', KEYS[1]) or 0)
if free < tonumber(ARGV[1]) then return {} end
redis.call('DECRBY', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1
