-- Redis's functions and Lua's by short names.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub = string.byte, string.char, string.sub
