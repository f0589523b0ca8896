-- A sliding log keeps the promise of a token bucket in one string:
--   state  string  HEAD: its form; the time before the first entry, and that of the
--                  last; permits in all entries; how many entries there are.
--                  In form 2 then MORE: until when the key is banned, and the floor,
--                  a time until which nothing merged is given back any more.
--                  Then the entries, oldest first.
--                  Form 3 is one entry alone, as most keys have: its time, and the entry,
--                  which is of the same ms, and of less than 256 permits.
-- An entry is a byte that says what it has: +2, +3, +5 so many bytes with the ms
-- since the entry before (none: the same ms), +8 a count of 4 bytes instead of 1,
-- +16 the 8 bytes of an id. Of an id the count 0 says that it was given back; what
-- has no id is merged and keeps the latest of its times. All lowest byte first.
-- limiter's window.go is the same.

local HEAD, MORE = '<BI6I6I4I2', '<I6I6'
local BODY = 20 -- where the entries begin in form 1
local ONE, ONE_SIZE = '<BI6BBc8', 17

-- entry reads the one at i: ms since the one before, permits, where the next one
-- begins, and where its id does, if it has one.
local function entry(s, i)
  local tag, a, b, c, d, e = byte(s, i, i + 5)
  local wide, after = tag % 8, 0
  if wide == 2 then
    after = a + b * 256
  elseif wide == 3 then
    after = a + b * 256 + c * 65536
  elseif wide == 5 then
    after = a + b * 256 + c * 65536 + d * 16777216 + e * 4294967296
  end
  i = i + wide + 1
  local n
  if tag % 16 < 8 then
    n, i = byte(s, i), i + 1
  else
    n, i = struct.unpack('<I4', s, i)
  end
  if tag >= 16 then return after, n, i + 8, i end
  return after, n, i
end

-- one_of reads what a state of form 3 at i says, as unpack of HEAD does behind the form.
local function one_of(s, i)
  local _, at, _, n = struct.unpack('<BI6BB', s, i)
  return at, at, n, 1, i + 7
end

-- packed writes an entry; id is false of one that is merged.
local function packed(after, n, id)
  local tag = n < 256 and 0 or 8
  if id then tag = tag + 16 end
  local count = n < 256 and char(n) or struct.pack('<I4', n)
  if id then count = count .. id end
  if after == 0 then return char(tag) .. count end
  if after < 65536 then return char(tag + 2, after % 256, floor(after / 256)) .. count end
  if after < 16777216 then return struct.pack('<BI3', tag + 3, after) .. count end
  return struct.pack('<BI5', tag + 5, after) .. count
end
