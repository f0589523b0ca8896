-- A fixed window: `taken` permits since `start`, when the first of them was taken; 0 if none was.
--   state  '<BI6I4': form 1, start, taken
local start, taken

local function open()
  start, taken = 0, 0
  if packed then
    usual = last - first == 10
    if usual then
      local form
      form, start, taken = unpack_at('<BI6I4', packed, first)
      usual = form == 1 and start <= NOW
      if NOW - start >= length then start, taken = 0, 0 end
    end
  end
  left = rate - taken
end

local function take()
  if start == 0 then start = NOW end
  taken, left = taken + cost, left - cost
end

local function save() state = tag .. pack('<BI6I4', 1, start, taken) end

local function wait() later = start + length - NOW end

--@ general
local LAYOUT = '<BI6I4'
local function packed_state() return pack(LAYOUT, 1, start, math.min(taken, MOST_COUNT)) end

local function settle()
  local _
  _, _, taken = unpack_at(LAYOUT, packed)
  start = NOW
end

--@ change
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
    taken = taken + g.n
  end
end
