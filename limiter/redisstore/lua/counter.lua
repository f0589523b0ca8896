-- The algorithms that keep no log: a fixed window, a sliding one of two counters,
-- and GCRA. Each is one string:
--   state  string  its form, and numbers of the algorithm: see each. In form 2 then
--                  until when the key is banned; a floor, the time until which nothing
--                  is given back any more; and marks of what was, 14 bytes each: its
--                  time and its id, oldest first. All lowest byte first.
-- limiter's counter.go is the same arithmetic, in the same order.

local TINY, MOST = 1e-6, 4294967295
local FIXED, SLIDING, GCRA = '<BI6I4', '<BI6I4I4', '<BI6I6d'

-- used is what counts at a time: what was taken in its window, and of the one before
-- the part that lies less than a length back, rounded up. start is the number of the
-- window in which `taken` was taken, and `before` in the one before that.
local function used(start, taken, before, at, length)
  local number = floor(at / length)
  local n = start == number and before or start + 1 == number and taken or 0
  local faded = math.ceil(n * ((number * length + length - at) / length))
  return start == number and taken + faded or faded
end

-- until_used is how long after NOW no more than `room` is used: still in this window
-- while the one before fades, or in the next while this one does.
local function until_used(start, taken, before, length, room)
  local fading, border, free = before, (start + 1) * length, room - taken
  if taken > room then fading, border, free = taken, border + length, room end
  local at = math.max(border - floor(math.max(0, free) * length / math.max(1, fading)), NOW + 1)
  while at > NOW + 1 and used(start, taken, before, at - 1, length) <= room do at = at - 1 end
  while used(start, taken, before, at, length) > room do at = at + 1 end
  return at - NOW
end

-- owed is how many permits of those that were owed at start have not flowed back.
local function owed(debt, start, at, rate, length)
  return math.max(0, debt - (at - start) * rate / length)
end

-- until_owed is how long after NOW so much has flowed back that cost are left of most.
local function until_owed(debt, start, rate, length, most, cost)
  local function left(at) return floor(most - owed(debt, start, at, rate, length) + TINY) end
  local over = owed(debt, start, NOW, rate, length) + cost - most - TINY
  local at = NOW + math.max(1, math.ceil(over * length / rate))
  while at > NOW + 1 and left(at - 1) >= cost do at = at - 1 end
  while left(at) < cost do at = at + 1 end
  return at - NOW
end
