-- inspect says how keys stand, and writes nothing.
-- KEYS, ARGV  as for take, without requests
-- reply       time (ms); then for each window 1, what is left, what was taken, and how many ms
--             until one more is left, until nothing is taken, and until its ban ends; or 0 and
--             five times 0 if it cannot be read

-- standing is what the reply says of w.
local function standing(w)
  local most, wait = w.l.most, w.algorithm.wait
  local full = wait(w, most) -- first: it reads most, and may correct what is left
  local left = math.max(0, w.left)
  local next, taken = left < most and wait(w, left + 1) or 0, most - w.left
  if w.algorithm.standing then taken, full = w.algorithm.standing(w) end
  return left, taken, next, full
end

local reply = { NOW }
for _, w in ipairs(read_windows()) do
  local k, ok, left, taken, next, full = #reply, false, 0, 0, 0, 0
  if not w.bad then ok, left, taken, next, full = pcall(standing, w) end
  if ok then
    reply[k + 1], reply[k + 2], reply[k + 3] = 1, left, taken
    reply[k + 4], reply[k + 5], reply[k + 6] = next, full, w.banned or 0
  else
    for i = 1, 6 do reply[k + i] = 0 end
  end
end
return reply
