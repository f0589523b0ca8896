-- int writes a time or any other whole number, count_text one that fits 32 bits. What
-- %d takes is of C's type long, which has 64 bits on most machines: there it takes a
-- sixth of the time of %.0f. A number in a call of Redis is written with 17 digits, which
-- takes as long.
local whole
local function int(n)
  if not whole then whole = format('%d', 1099511627776) == '1099511627776' and '%d' or '%.0f' end
  return format(whole, n)
end
local function count_text(n) return format('%d', n) end
