-- raise puts an alert into the queue, unless the same was raised not long ago.
-- fence.lua goes before it.
-- KEYS[2,3]  what says that the same was raised; the queue
-- ARGV       token; the alert, how long the same is not raised again (ms), how long
--            the queue may be, how long it lives (ms)
-- reply      1; 0: the same was raised before; -1: the queue is full, the alert is lost
if not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[3]) then return 0 end
if redis.call('LLEN', KEYS[3]) >= tonumber(ARGV[4]) then return -1 end
redis.call('RPUSH', KEYS[3], ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return 1
