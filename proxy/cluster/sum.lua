-- sum writes down what all nodes together have counted in a minute, in place of
-- what was written before. fence.lua goes before it.
-- KEYS[2,3]  the sum; zset of minutes to be added up
-- ARGV       token; minute, the sum, how long it is kept (ms, counted from the
--            beginning of the minute), when the minute had changed last before it
--            was read
-- reply      1
-- A minute that has changed since then stays in the zset, to be added up again. A
-- sum of nothing changes no sum: the reports have expired, and were added up.
local t = redis.call('TIME')
local left = ARGV[2] * 60000 + ARGV[4] - (t[1] * 1000 + math.floor(t[2] / 1000))
if left > 0 and ARGV[3] ~= '[]' then redis.call('SET', KEYS[2], ARGV[3], 'PX', string.format('%.0f', left)) end
if redis.call('ZSCORE', KEYS[3], ARGV[2]) == ARGV[5] then redis.call('ZREM', KEYS[3], ARGV[2]) end
return 1
