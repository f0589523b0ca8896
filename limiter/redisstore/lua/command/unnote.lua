-- unnote takes out of a note what was taken under a subject, to be given back in other slots.
-- KEYS   the note
-- ARGV   no limits; 1 if subjects are confirmed; and an ID if only what it took is given back
-- reply  the parts, see general/note.lua, each with a byte behind it, which is 1 if its subject is to be confirmed;
--        and when it was confirmed before, in ms (6 bytes)
local parts, converts = {}, ARGV[2] == '1'

-- has_left is whether the bucket of a part has left the window, see algorithm/conversion.lua: then nothing is
-- given back, and its subject is not confirmed.
local function has_left(part)
  local at, length = number(part, 9, 6), number(part, 35, 6)
  local width = floor((length + 59) / 60)
  return floor(at / width) * width + width - 1 + length <= NOW
end

local function give(part)
  if converts and has_left(part) then return false end
  parts[#parts + 1] = part .. little(0, 7)
  return true
end

local function confirm(part, at)
  parts[#parts] = part .. char(1) .. little(at, 6)
  return true
end

refund_note(KEYS[1], ARGV[3], MOST_NOTED, give, converts and confirm or nil)
return parts
