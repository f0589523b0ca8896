-- A sliding window of two counters: what was taken in the window of now, whose number is
-- `window`, and in the one before. Of that the part counts that is less than a length ago,
-- rounded up. limiter's sliding_window.go is the same arithmetic, in the same order.
--   state  '<BI6I4I4': form 1, window, taken, before
local window, taken, before

local function open()
  window, taken, before = floor(NOW / length), 0, 0
  if packed then
    usual = last - first == 14
    if usual then
      local form, written
      form, written, taken, before = unpack_at('<BI6I4I4', packed, first)
      usual = form == 1 and written <= window
      if written ~= window then
        before = written == window - 1 and taken or 0
        taken = 0
      end
    end
  end
  left = rate - taken
  if before > 0 then left = left - math.ceil(before * ((window * length + length - NOW) / length)) end
end

local function take() taken, left = taken + cost, left - cost end

local function save() state = tag .. pack('<BI6I4I4', 1, window, taken, before) end

-- wait: in this window while the one before fades, or in the next while this one does. The
-- loops make it exact, whatever was rounded.
local function wait()
  local room, counted, fading, border = rate - cost, taken, before, (window + 1) * length
  if taken > room then counted, fading, border = 0, taken, border + length end
  local at = math.max(border - floor((room - counted) * length / math.max(1, fading)), NOW + 1)
  while at > NOW + 1 and counted + math.ceil(fading * ((border - at + 1) / length)) <= room do at = at - 1 end
  while counted + math.ceil(fading * ((border - at) / length)) > room do at = at + 1 end
  later = at - NOW
end

--@ general
local LAYOUT = '<BI6I4I4'
local function packed_state() return pack(LAYOUT, 1, window, math.min(taken, MOST_COUNT), math.min(before, MOST_COUNT)) end

-- What was counted in a window to come is in the window of now.
local function settle()
  local _
  _, _, taken, before = unpack_at(LAYOUT, packed)
end

--@ change
local function holds(at)
  local its = floor(at / length)
  return its == window and taken > 0 or its == window - 1 and before > 0
end

-- give takes n permits out of the window of `at`, or without one out of the youngest.
local function give(n, at)
  local its, some, more = at and floor(at / length), 0, 0
  if its ~= window - 1 then some = math.min(n, taken) end
  if its ~= window then more = math.min(n - some, before) end
  taken, before = taken - some, before - more
  return some + more
end

local function enter(grants)
  for _, g in ipairs(grants) do
    local its = floor(g.at / length)
    if its == window then
      taken = taken + g.n
    elseif its == window - 1 then
      before = before + g.n
    end
  end
end
