-- The pauses of cooldowns: see cooldown.lua.
local PAUSES = 32 -- the most entries of one

-- pause is how long the next permit of the l-th limit comes after so many others, which
-- is the last step at most. A step is 6 bytes.
local function pause(l, level)
  local all = steps[l]
  local a, b, c, d, e, f = byte(all, 6 * level - 5, 6 * level)
  if not f then a, b, c, d, e, f = byte(all, -6, -1) end
  return a + b * 256 + c * 65536 + (d + e * 256 + f * 65536) * 16777216
end
