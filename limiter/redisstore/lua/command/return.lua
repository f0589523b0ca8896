-- return gives back all permits that are noted under a subject, each as refund does, once.
-- KEYS   the note
-- ARGV   limits, see limit.lua; what names of windows begin with, up to the key; then for each
--        limit what follows the key: in the name of the packed string, or of the three keys up
--        to the last colon; and an ID if only what it took is given back
-- reply  of how many decisions something was given back, and MORE besides if another call has to give back the rest
-- It writes keys that only the note names, for another round trip would let somebody come between. So it is for a
-- Redis without slots; users need no more rights than for these keys themselves.

-- limit_of is the limit of this length: the one under whose rate was taken, if there is one.
local function limit_of(length, rate)
  local found
  for i = 1, #limits do
    if limits[i].length == length and (not found or limits[i].rate == rate) then found = limits[i] end
  end
  return found
end

-- window_of is the window that a part is of, if its limit is known.
local function window_of(part)
  local l = limit_of(number(part, 35, 6), number(part, 41, 4))
  if not l then return nil end
  local key = string.gsub(sub(part, 19, 34), '.', function(c) return string.format('%02x', byte(c)) end)
  local name = ARGV[2] .. key .. ARGV[2 + l.number]
  if algorithms[l.algorithm].keys == 1 then return new_window(l, name) end
  return new_window(l, name .. ':value', name .. ':permits', name .. ':base')
end

local function give(part, id)
  local w = window_of(part)
  return w and (refund(w, id, number(part, 15, 4), number(part, 9, 6)) or 0) > 0
end

local function confirm(part, at)
  local w = window_of(part)
  return w.algorithm.confirm(w, at)
end

local MORE, MOST_PARTS = 1048576, 8
local decisions, is_more = refund_note(KEYS[1], ARGV[3 + #limits], MOST_PARTS, give, confirm)
publish_changes()
return decisions + (is_more and MORE or 0)
