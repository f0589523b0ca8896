-- What every script has: Redis's functions by short names, the time, and the sizes
-- that limiter's window.go has too.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub, format = string.byte, string.char, string.sub, string.format
local FULL, SLOTS, MARKS = 128, 64, 32
local NOW = clock()

-- int writes a time or any other whole number; count_text a count of permits,
-- which fits 32 bits and so is written faster.
local function int(n) return format('%.0f', n) end
local function count_text(n) return format('%d', n) end
