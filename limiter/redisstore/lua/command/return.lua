-- return gives back all permits that are noted under a subject, each as refund does, once.
-- KEYS   the note
-- ARGV   limits, see frame.lua; what names of windows begin with, up to the key; then for each
--        limit what follows the key: in the name of the packed string, or of the three keys up
--        to the last colon
-- reply  of how many decisions something was given back
-- It writes keys that only the note names, so it is for a Redis without slots.

-- limit_of is the limit of this length: the one under whose rate was taken, if there is one.
local function limit_of(length, rate)
  local found
  for i = 1, #limits do
    if limits[i].length == length and (not found or limits[i].rate == rate) then found = limits[i] end
  end
  return found
end

local function hexadecimal(key)
  return (string.gsub(key, '.', function(c) return string.format('%02x', byte(c)) end))
end

-- window_of is the window of the limit l on a key.
local function window_of(l, key)
  local name = ARGV[2] .. hexadecimal(key) .. ARGV[2 + l.number]
  if algorithms[l.algorithm].keys == 1 then return new_window(l, name) end
  return new_window(l, name .. ':value', name .. ':permits', name .. ':base')
end

local text, known, decisions = redis.pcall('GET', KEYS[1]), {}, 0
if type(text) ~= 'string' then return 0 end
call('DEL', KEYS[1])
for i = 1, #text - NOTED + 1, NOTED do
  local id, l = sub(text, i, i + 7), limit_of(number(text, i + 34, 6), number(text, i + 40, 4))
  if l then
    local w = window_of(l, sub(text, i + 18, i + 33))
    -- a key that cannot be read does not stop the others
    local ok, n = pcall(w.algorithm.refund, w, id, number(text, i + 14, 4), number(text, i + 8, 6))
    if ok and n > 0 then
      publish_change(w)
      if not known[id] then decisions = decisions + 1 end
      known[id] = true
    end
  end
end
return decisions
