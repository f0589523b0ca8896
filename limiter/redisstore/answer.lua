-- answer decides the request that begins at `from`, over windows that are read already
-- and counted from behind `base`. Their algorithm has said how to read a window, to wait,
-- to grant, and to write, and what is left (lefts); what is known of the i-th stands at i
-- of a table for each thing: a table for each window would cost more than its decision.
-- It returns where the next request begins.
local reply, r = { NOW }, 1
local function answer(from, base)
  local n, allowed, start, at = byte(requests, from), 1, r + 1, from + 10
  reply[start] = 1
  for _ = 1, n do
    local b, c, d, e, x, y = byte(requests, at, at + 5)
    local w, cost, waits = x + y * 256 - base, b, 0
    if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
    local left = lefts[w]
    if cost > left then allowed, waits = 0, wait(w, cost) end
    r, at = r + 2, at + 6
    reply[r], reply[r + 1] = left < 0 and 0 or left, waits
  end
  r = r + 1
  if allowed == 0 then
    reply[start] = 0
    return at
  end
  at = from + 10
  for _ = 1, n do
    local b, c, d, e, x, y = byte(requests, at, at + 5)
    local w, cost = x + y * 256 - base, b
    if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
    granted[w] = true
    grant(w, cost, from + 2, at)
    local left = lefts[w]
    reply[start + 1], reply[start + 2] = left, cost > left and wait(w, cost) or 0
    start, at = start + 2, at + 6
  end
  return at
end
