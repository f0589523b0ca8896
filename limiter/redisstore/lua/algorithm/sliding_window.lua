-- A sliding window of two counters: what was taken in the window of now, whose number is
-- `window`, and in the one before. Of that the part counts that is less than a length ago,
-- rounded up. limiter's sliding_window.go is the same arithmetic, in the same order.
--   state  form 1, window, taken, before
local FORMAT, HEAD = '<BI6I4I4', 15
local window, taken, before

local function open()
  window, taken, before = floor(NOW / length), 0, 0
  fast = not packed or last - first == HEAD - 1
  if packed and fast then
    local form, written
    form, written, taken, before = unpack_at(FORMAT, packed, first)
    fast = form == 1 and written <= window
    if fast and written ~= window then
      before = written == window - 1 and taken or 0
      taken = 0
    end
  end
  left = rate - taken
  if before > 0 then left = left - math.ceil(before * ((window * length + length - NOW) / length)) end
end

local function take() taken, left = taken + cost, left - cost end

local function save() state = field .. pack(FORMAT, 1, window, taken, before) end

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

local function holds(at)
  local number_at = floor(at / length)
  return number_at == window and taken > 0 or number_at == window - 1 and before > 0
end

-- give takes n permits out of the window of `at`, or without one out of the youngest.
local function give(n, at)
  local number_at, some, more = at and floor(at / length), 0, 0
  if number_at ~= window - 1 then some = math.min(n, taken) end
  if number_at ~= window then more = math.min(n - some, before) end
  taken, before = taken - some, before - more
  return some + more
end

local function enter(grants)
  for _, g in ipairs(grants) do
    local number_at = floor(g.at / length)
    if number_at == window then
      taken = math.min(taken + g.n, MOST_COUNT)
    elseif number_at == window - 1 then
      before = math.min(before + g.n, MOST_COUNT)
    end
  end
end
