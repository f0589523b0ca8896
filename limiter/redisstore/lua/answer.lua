-- answer decides the request that begins at `from`, over windows that are read already
-- and counted from behind `base`. Their algorithm has said how to read a window, to wait,
-- to grant, and to write, and what is left (lefts); what is known of the i-th stands at i
-- of a table for each thing: a table for each window would cost more than its decision.
-- It returns where the next request begins.
local costs = {}
local asked, asked_left, asked_wait = {}, {}, {} -- of each window: the wait that was reckoned last
local function answer(from, base)
  --@ count claims
  local allowed, start, at = 1, r + 1, from + 10
  reply[start] = 1
  for j = 1, n do
    local b, c, d, e, x, y = byte(requests, at, at + 5)
    local number, cost, waits = x + y * 256, b, 0
    if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
    local left = lefts[number - base]
    if cost > left then
      if asked[number] ~= cost or asked_left[number] ~= left then
        asked[number], asked_left[number], asked_wait[number] = cost, left, wait(number - base, cost)
      end
      allowed, waits = 0, asked_wait[number]
    end
    costs[j] = cost
    r, at = r + 2, at + 6
    reply[r], reply[r + 1] = left < 0 and 0 or left, waits
  end
  r = r + 1
  if allowed == 0 then
    reply[start] = 0
    return at
  end
  local id = from + 2
  at = from + 14
  for j = 1, n do
    local x, y = byte(requests, at, at + 1)
    local w, cost = x + y * 256 - base, costs[j]
    granted[w] = true
    --@ grant
    local left = lefts[w]
    reply[start + 1], reply[start + 2] = left, cost > left and wait(w, cost) or 0
    start, at = start + 2, at + 6
  end
  return from + 10 + 6 * n
end
