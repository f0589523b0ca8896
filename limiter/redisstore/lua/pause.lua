-- The pauses of cooldowns: see cooldown.lua.
local PAUSES = 32 -- the most entries of one

-- pause is how long the next permit comes after so many others: the step of that number,
-- or the last one. A step is 6 bytes.
local function pause(steps, level)
  local a, b, c, d, e, f = byte(steps, 6 * level - 5, 6 * level)
  if not f then a, b, c, d, e, f = byte(steps, -6, -1) end
  return a + b * 256 + c * 65536 + (d + e * 256 + f * 65536) * 16777216
end
