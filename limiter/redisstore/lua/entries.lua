-- Entries of what was taken, oldest first, as tables: the time `at`, the permits n, and the ID, false if several were
-- merged, at the latest of their times. The count 0 of an ID is a tombstone: it was given back.
-- Logs are merged into SLOTS parts of their length. More refunds than these are remembered by one time alone.
local SLOTS, TOMBSTONES = 64, 32

-- insert_entry puts e where its time belongs.
local function insert_entry(all, e)
  local i = #all + 1
  while i > 1 and all[i - 1].at > e.at do i = i - 1 end
  table.insert(all, i, e)
end

-- merge_entries makes one entry of all whose times lie in one of SLOTS parts of the length, and keeps the latest
-- TOMBSTONES. It keeps the latest time, so that nothing comes back early.
local function merge_entries(w, all, length)
  local width, tombstones, kept, last = math.ceil(length / SLOTS), 0, {}, nil
  for i = #all, 1, -1 do
    local e = all[i]
    if e.n == 0 then
      if e.id then tombstones = tombstones + 1 end
      if e.id and tombstones > TOMBSTONES then w.refund_horizon, e.id = math.max(w.refund_horizon, e.at), false end
    elseif last and floor(last.at / width) == floor(e.at / width) then
      last.n, last.id, last.member, e.n, e.id = last.n + e.n, false, nil, 0, false
    else
      last = e
    end
  end
  for _, e in ipairs(all) do
    if e.n > 0 or e.id then kept[#kept + 1] = e end
  end
  return kept
end

-- forget_id remembers that the ID of e gives nothing back any more.
local function forget_id(w, all, e)
  if w.l.rate <= FULL then
    w.refund_horizon = math.max(w.refund_horizon, e.at)
  else
    insert_entry(all, { at = e.at, n = 0, id = e.id })
  end
  e.id = false
end

-- refund_merged gives back n of what id took and was merged since, and returns how many: it is in the first merged entry
-- that is not older.
local function refund_merged(w, all, id, n, at)
  if at <= NOW - w.l.length or at <= w.refund_horizon then return 0 end
  for _, e in ipairs(all) do
    if not e.id and e.at >= at then
      n = math.min(n, e.n)
      e.n = e.n - n
      insert_entry(all, { at = at, n = 0, id = id })
      return n
    end
  end
  return 0
end

-- grant_entries takes n permits out of the youngest entries, and returns how many there were. What remains of one
-- cannot be given back by its ID any more.
local function grant_entries(all, n)
  local rest = n
  for i = #all, 1, -1 do
    local e = all[i]
    local some = math.min(rest, e.n)
    if some > 0 then e.n, e.id, rest = e.n - some, false, rest - some end
  end
  return n - rest
end
