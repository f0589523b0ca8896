-- What GCRA, fixed windows and sliding windows do alike beside the fast path. They keep no
-- entries; so what was given back is known by tombstones of 14 bytes each: time and ID, oldest first.
local function check_form()
  if #packed ~= HEAD or byte(packed) ~= 1 then error('a state of another form') end
end

-- add_tombstone tombstones id as given back. It is false if it is already, may be, or has expired.
-- Of too many tombstones the oldest is forgotten for the refund horizon.
local function add_tombstone(w, id, at)
  local oldest, kept = NOW - w.l.horizon, {}
  if at <= oldest or at <= w.refund_horizon then return false end
  for i = 1, #w.tombstones, 14 do
    local other = { at = unpack_at('<I6', w.tombstones, i), id = sub(w.tombstones, i + 6, i + 13) }
    if other.id == id then return false end
    if other.at > oldest then kept[#kept + 1] = other end
  end
  insert_entry(kept, { at = at, id = id })
  if #kept > SLOTS then w.refund_horizon = math.max(w.refund_horizon, table.remove(kept, 1).at) end
  for i, tombstone in ipairs(kept) do kept[i] = pack('<I6', tombstone.at) .. tombstone.id end
  w.tombstones = table.concat(kept)
  return true
end

local function refund(w, id, n, at)
  if not holds(at) or not add_tombstone(w, id, at) then return 0 end
  return give(n, at)
end

local function grant(n) give(n) end
