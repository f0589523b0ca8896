-- one_set is one.lua for a window of three keys.
read_limit()
read_cost()
local allowed, got = 0, call('MGET', KEYS[1], KEYS[3])
key, log, value, fast, later = KEYS[1], KEYS[2], got[1], not got[2], 0
