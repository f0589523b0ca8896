-- report writes down what one node has counted in one minute so far, in place of
-- what it wrote before: doing it twice is as good as once.
-- KEYS   hash of the minute: node -> report; zset of minutes to be added up: minute
--        -> when it changed last
-- ARGV   minute, node, report, how long a minute is open (ms)
-- reply  time (ms), 1; or 0: the minute is closed
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now - ARGV[1] * 60000 > tonumber(ARGV[4]) then return { now, 0 } end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], 2 * ARGV[4])
local changed = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1])) or 0
redis.call('ZADD', KEYS[2], string.format('%.0f', math.max(now, changed + 1)), ARGV[1])
redis.call('PEXPIRE', KEYS[2], 2 * ARGV[4])
return { now, 1 }
