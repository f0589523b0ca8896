-- What GCRA, fixed windows and sliding windows do alike beside the usual path. They keep no
-- entries; so what was given back is known by marks of 14 bytes each: time and ID, oldest first.
local HEAD = #pack(LAYOUT, 1, 0, 0, 0)

local function check_form()
  if #packed ~= HEAD or byte(packed) ~= 1 then error('a state of another form') end
end

--@ change
-- mark_refund marks id as given back. It is false if it is already, may be, or has expired.
-- Of too many marks the oldest is forgotten for the floor.
local function mark_refund(w, id, at)
  local oldest = NOW - w.l.horizon
  if at <= oldest or at <= w.floor then return false end
  local kept, own = {}, pack('<I6', at) .. id
  for i = 1, #w.marks, 14 do
    local mark = sub(w.marks, i, i + 13)
    local its = unpack_at('<I6', mark)
    if sub(mark, 7) == id then return false end
    if own and its > at then
      kept[#kept + 1] = own -- by itself: the Lua of miniredis would write nil
      own = nil
    end
    if its > oldest then kept[#kept + 1] = mark end
  end
  kept[#kept + 1] = own
  if #kept > SLOTS then w.floor = math.max(w.floor, (unpack_at('<I6', table.remove(kept, 1)))) end
  w.marks = table.concat(kept)
  return true
end

local function refund(w, id, n, at)
  if not holds(at) or not mark_refund(w, id, at) then return 0 end
  return give(n, at)
end

local function grant(n) give(n) end
