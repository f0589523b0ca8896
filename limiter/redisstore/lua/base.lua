-- What every script has: Redis's functions by short names, the time, and the sizes
-- that limiter's window.go has too.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub, format = string.byte, string.char, string.sub, string.format
local FULL, SLOTS, MARKS = 128, 64, 32
local NOW = clock()
