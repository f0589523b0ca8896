-- GCRA: `debt` permits are owed now and come back evenly; `free_at` is when none were owed for
-- the last time. limiter's gcra.go is the same arithmetic, in the same order.
--   state  form 1, the time for which debt is known, free_at, debt
local FORMAT, HEAD, TINY = '<BI6I6d', 21, 1e-6
local free_at, debt

local function open()
  free_at, debt = NOW, 0
  fast = not packed or last - first == HEAD - 1
  if packed and fast then
    local form, known_at
    form, known_at, free_at, debt = unpack_at(FORMAT, packed, first)
    fast = form == 1 and known_at <= NOW
    if fast then
      if debt > most then debt = most end -- of a higher limit
      debt = debt - (NOW - known_at) * rate / length
      if not (debt > 0) then free_at, debt = NOW, 0 end -- also if it is no number
    end
  end
  left = floor(most - debt + TINY)
end

local function take()
  debt = debt + cost
  left = floor(most - debt + TINY)
end

local function save() state = field .. pack(FORMAT, 1, NOW, free_at, debt) end

-- What is short says about when; the loops make it exact, whatever was rounded.
local function wait()
  later = math.max(1, math.ceil((debt + cost - most - TINY) * length / rate))
  while later > 1 and floor(most - math.max(0, debt - (later - 1) * rate / length) + TINY) >= cost do
    later = later - 1
  end
  while floor(most - math.max(0, debt - later * rate / length) + TINY) < cost do later = later + 1 end
end

local function holds(at) return debt > 0 and at >= free_at end

local function give(n)
  debt = math.max(0, debt - n)
  return n
end

-- Debts add up: what is owed here, and what the grants by themselves would owe now.
local function enter(grants)
  local sum, at = 0, NOW
  for _, g in ipairs(grants) do
    sum, at = math.max(0, sum - (g.at - at) * rate / length) + g.n, g.at
  end
  if debt == 0 then free_at = grants[1].at end
  debt = math.min(most, debt + math.max(0, sum - (NOW - at) * rate / length))
end
