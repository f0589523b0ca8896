-- Whole numbers as text: int writes any of them, count_text those that fit 32 bits. The type
-- that %d takes has 64 bits on most machines; it needs a sixth of the time of %.0f there.
local format, int_format = string.format, nil
local function int(n)
  if not int_format then int_format = format('%d', 1099511627776) == '1099511627776' and '%d' or '%.0f' end
  return format(int_format, n)
end
local function count_text(n) return format('%d', n) end
