-- What a sliding log and a cooldown share: entries of what was taken, oldest first, that follow
-- the head of a state. An entry is one byte that says what it has: +2, +3, +5 for as many bytes
-- with the ms since the entry before (none: the same ms), +8 for a count of 4 bytes instead of
-- 1, +16 for the 8 bytes of an ID. The count 0 of an ID says that it was given back; an entry
-- without an ID is of several that were merged, at the latest of their times. Lowest byte
-- first. limiter's window.go is the same.
--   state  '<BI6I6I4I2': form 1, the time that the first entry counts from, that of the last,
--          permits in all entries, how many entries follow; or, as most keys have,
--          '<BI6BBc8': form 3, the time of the one entry, which is of less than 256 permits
local FULL = 128 -- entries are merged beyond that
local before, newest, taken, count

-- entry reads the one at i: ms since the one before, permits, where the next begins, and where
-- its ID does, if it has one.
local function entry(s, i)
  local head, a, b, c, d, e = byte(s, i, i + 5)
  if head == 18 then return a + b * 256, c, i + 12, i + 4 end
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
  if not packed then
    before, newest, taken, count, first, last = NOW, NOW, 0, 0, 1, 0
  elseif last - first == 16 and byte(packed, first) == 3 then
    local _
    _, before, _, taken, first = unpack_at('<BI6BB', packed, first)
    newest, count, first, usual = before, 1, first - 2, before <= NOW
  else
    usual = last - first > 17 and byte(packed, first) == 1
    if usual then
      local _
      _, before, newest, taken, count, first = unpack_at('<BI6I6I4I2', packed, first)
      usual = newest <= NOW
    end
  end
end

-- add sets the state with an entry of the claim more. Several windows of one request mostly
-- get the same entry.
local added, added_id, added_after, added_cost
local function add()
  if count == 0 and cost < 256 then
    state = tag .. pack('<BI6BBc8', 3, NOW, 16, cost, sub(requests, id, id + 7))
  else
    local after = NOW - newest
    if added_id ~= id or added_after ~= after or added_cost ~= cost then
      added_id, added_after, added_cost = id, after, cost
      if after < 65536 and cost < 256 then
        added = pack('<BI2Bc8', 18, after, cost, sub(requests, id, id + 7))
      else
        added = entry_text(after, cost, sub(requests, id, id + 7))
      end
    end
    state = tag .. pack('<BI6I6I4I2', 1, before, NOW, taken + cost, count + 1) .. (packed and sub(packed, first, last) or '') .. added
  end
end

--@ general
local HEAD, HEAD_OF_ONE, LOGGED = 19, 17, true

local function packed_state()
  return pack('<BI6I6I4I2', 1, before, newest, taken, count) .. (packed and sub(packed, first, last) or '')
end

local function check_form()
  local form = byte(packed)
  if not (form == 1 and #packed >= HEAD or form == 3 and #packed == HEAD_OF_ONE) then error('a state of another form') end
end

-- list_entries makes a table of each entry that counts, oldest first.
local function list_entries()
  local all, at, i = {}, before, first
  while i <= last do
    local after, n, next, its_id = entry(packed, i)
    at, i = at + after, next
    all[#all + 1] = { at = at, n = n, id = its_id and sub(packed, its_id, its_id + 7) }
  end
  return all
end

-- put_entries makes them the entries that count.
local function put_entries(all)
  local texts, at = {}, all[1] and all[1].at or NOW
  before, count, taken = at, #all, 0
  for i, e in ipairs(all) do
    texts[i] = entry_text(e.at - at, e.n, e.id)
    at, taken = e.at, taken + e.n
  end
  packed, newest = table.concat(texts), at
  first, last = 1, #packed
end

-- insert_entry puts e where its time belongs.
local function insert_entry(all, e)
  local i = #all + 1
  while i > 1 and all[i - 1].at > e.at do i = i - 1 end
  table.insert(all, i, e)
end

local function settle()
  local all = list_entries()
  for _, e in ipairs(all) do e.at = math.min(e.at, NOW) end
  put_entries(all)
end

--@ change
-- insert_grants puts each grant there once.
local function insert_grants(all, grants)
  local known = {}
  for _, e in ipairs(all) do
    if e.id then known[e.id] = true end
  end
  for _, g in ipairs(grants) do
    if not known[g.id] then insert_entry(all, { at = g.at, n = g.n, id = g.id }) end
    known[g.id] = true
  end
end
