-- A fixed window: `taken` permits since `start`, when the first of them was taken; 0 if none was.
--   state  form 1, start, taken
local FORMAT, HEAD = '<BI6I4', 11
local start, taken

local function open()
  start, taken = 0, 0
  fast = not packed or last - first == HEAD - 1
  if packed and fast then
    local form
    form, start, taken = unpack_at(FORMAT, packed, first)
    fast = form == 1 and start <= NOW
    if NOW - start >= length then start, taken = 0, 0 end
  end
  left = rate - taken
end

local function take()
  if start == 0 then start = NOW end
  taken, left = taken + cost, left - cost
end

local function save() state = field .. pack(FORMAT, 1, start, taken) end

local function wait() later = start + length - NOW end

local function begin_now() start = NOW end

local function holds(at) return start > 0 and at >= start and taken > 0 end

local function give(n)
  n = math.min(n, taken)
  taken = taken - n
  return n
end

-- What is older than the current window counts in it as well.
local function enter(grants)
  for _, g in ipairs(grants) do
    if start == 0 then start = g.at end
    taken = math.min(taken + g.n, MOST_COUNT)
  end
end
