-- What a sliding log and a cooldown share: entries of what was taken, oldest first, that follow
-- the head of a state. An entry is one byte that says what it has: +2, +3, +5 for as many bytes
-- with the ms since the entry before (none: the same ms), +8 for a count of 4 bytes instead of
-- 1, +16 for the 8 bytes of an ID, see entries.lua. limiter's permit_log.go is the same.
--   state  '<BI6I6I4I2': form 1, the time that the first entry counts from, that of the last,
--          permits in all entries, how many entries follow; or, as most keys have,
--          '<BI6BBc8': form 3, the time of the one entry, which is of less than 256 permits
local before, newest, taken, count
local added, given, new_entries -- what takes have added: how many, their permits, their text

-- entry reads the one at i: ms since the one before, permits, where the next begins, and where
-- its ID does, if it has one. One that is cut ends with zeros.
local function entry(s, i)
  local head, a, b, c, d, e = byte(s, i, i + 5)
  if head == 18 and c then return a + b * 256, c, i + 12, i + 4 end
  if i + 14 > #s then
    s = s .. '\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    head, a, b, c, d, e = byte(s, i, i + 5)
  end
  local width, after, n = head % 8, 0, nil
  if width > 1 then after = a + b * 256 end
  if width > 2 then after = after + c * 65536 end
  if width > 3 then after = after + d * 16777216 + e * 4294967296 end
  i = i + width + 1
  if head % 16 < 8 then
    n, i = byte(s, i), i + 1
  else
    n, i = unpack_at('<I4', s, i)
  end
  if head < 16 then return after, n, i end
  return after, n, i + 8, i
end

-- entry_text writes one, without an ID if it is merged.
local function entry_text(after, n, id)
  local width = after == 0 and 0 or after < 65536 and 2 or after < 16777216 and 3 or 5
  local text = char(width + (n < 256 and 0 or 8) + (id and 16 or 0))
  if width > 0 then text = text .. pack('<I' .. width, after) end
  return text .. (n < 256 and char(n) or pack('<I4', n)) .. (id or '')
end

-- open_log reads the head. Then the entries begin at `first`.
local function open_log()
  added, given, new_entries = 0, 0, ''
  if not packed then
    before, newest, taken, count, first, last = NOW, NOW, 0, 0, 1, 0
  elseif last - first == 16 and byte(packed, first) == 3 then
    local _
    _, before, _, taken, first = unpack_at('<BI6BB', packed, first)
    newest, count, first, fast = before, 1, first - 2, before <= NOW
  else
    fast = last - first > 17 and byte(packed, first) == 1
    if fast then
      local _
      _, before, newest, taken, count, first = unpack_at('<BI6I6I4I2', packed, first)
      fast = newest <= NOW
    end
  end
end

-- add_first makes the text of the first entry that is added. Several windows of one request
-- mostly get the same.
local HOT = 4 -- of more that are merged soon none has an entry of its own
local one_cost, one_id
local known_entry, known_after, known_cost, known_id
local function add_first()
  local after = NOW - newest
  if known_id ~= one_id or known_after ~= after or known_cost ~= one_cost then
    known_id, known_after, known_cost = one_id, after, one_cost
    if after < 65536 and one_cost < 256 then
      known_entry = pack('<BI2Bc8', 18, after, one_cost, sub(requests, one_id, one_id + 7))
    else
      known_entry = entry_text(after, one_cost, sub(requests, one_id, one_id + 7))
    end
  end
  new_entries = known_entry
end

local function add()
  added, given = added + 1, given + cost
  if added == 1 then
    one_cost, one_id = cost, id
  elseif added <= HOT or rate <= FULL then
    if added == 2 then
      add_first()
    end
    new_entries = new_entries .. entry_text(0, cost, sub(requests, id, id + 7))
  end
end

local function save()
  if added == 1 and count == 0 and one_cost < 256 then
    state = field .. pack('<BI6BBc8', 3, NOW, 16, one_cost, sub(requests, one_id, one_id + 7))
  else
    local n = added
    if n == 1 then
      add_first()
    elseif n > HOT and rate > FULL then
      n, new_entries = 1, entry_text(NOW - newest, given)
    end
    state = field .. pack('<BI6I6I4I2', 1, before, n > 0 and NOW or newest, taken + given, count + n)
      .. (packed and sub(packed, first, last) or '') .. new_entries
  end
end
