-- many is take for requests of any number of claims over windows of one algorithm, as
-- long as nothing about them is unusual. The algorithm has said how to read a window
-- and what is left of it (lefts); what is known of the i-th stands at i of a table for
-- each thing: a table for each window would cost more than its decision.
-- It says too how to wait, to grant, and to write: read, wait, grant, fits, write.
-- KEYS, ARGV, reply  as for take
-- The whole script is one step for everybody else.
local read_all, usual = pcall(fetch, read)
if not read_all or not usual then return general() end

local reply, r, from, size = { NOW }, 1, 1, #requests
while from <= size do
  local n, allowed, answer, at = byte(requests, from), 1, r + 1, from + 10
  reply[answer] = 1
  for _ = 1, n do
    local b, c, d, e, x, y = byte(requests, at, at + 5)
    local w, cost, waits = x + y * 256, b, 0
    if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
    local left = lefts[w]
    if cost > left then allowed, waits = 0, wait(w, cost) end
    r, at = r + 2, at + 6
    reply[r], reply[r + 1] = left < 0 and 0 or left, waits
  end
  r = r + 1
  reply[answer] = allowed
  if allowed == 1 then
    local last = at
    at = from + 10
    while at < last do
      local b, c, d, e, x, y = byte(requests, at, at + 5)
      local w, cost = x + y * 256, b
      if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
      granted[w] = true
      grant(w, cost, from + 2, at)
      local left = lefts[w]
      reply[answer + 1], reply[answer + 2] = left, cost > left and wait(w, cost) or 0
      answer, at = answer + 2, at + 6
    end
  end
  from = at
end

if not fits() then return general() end -- nothing is written yet
store(write)
return reply
