-- note writes down what came of one run of a task. fence.lua goes before it.
-- KEYS[2]  hash: task -> its last run
-- ARGV     token; task, its run, how long what is written lives (ms)
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
