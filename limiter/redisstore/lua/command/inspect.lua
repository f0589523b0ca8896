-- inspect says how keys stand, and writes nothing.
-- KEYS, ARGV  as for take, without requests
-- reply       time (ms); then for each window 1, what is left, what was taken, how many ms
--             until one more is left, until nothing is taken, and until its ban ends, what may
--             be taken at a time, and how many subjects were confirmed; or eight times 0 if it
--             cannot be read

-- status_of is what the reply says of w.
local function status_of(w)
  local most, wait = w.l.most, w.algorithm.wait
  local full = wait(w, most) -- first: it reads most, and may correct what is left
  local left = math.max(0, w.left)
  local next, taken = left < most and wait(w, left + 1) or 0, most - w.left
  local taken_now, later, allowed, confirmed = w.algorithm.current(w)
  return { left, taken_now or taken, next, later or full, w.banned or 0, allowed or most, confirmed or 0 }
end

local reply = { NOW }
for _, w in ipairs(read_windows()) do
  local k, ok, numbers = #reply, false, {}
  if not w.bad then ok, numbers = pcall(status_of, w) end
  reply[k + 1] = ok and 1 or 0
  for i = 1, 7 do reply[k + 1 + i] = ok and numbers[i] or 0 end
end
return reply
