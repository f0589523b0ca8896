-- A sliding log keeps the promise of a token bucket in one string, see log.lua.

local function open()
  open_log()
  if packed and fast and before <= NOW - length then
    local old = NOW - length
    if newest <= old then -- everything has come back
      before, taken, count, first = newest, 0, 0, last + 1
    end
    while first <= last do
      local head, a, b, n = byte(packed, first, first + 3)
      local after, next = 0, first + 12
      if head == 18 and n then after = a + b * 256 else after, n, next = entry(packed, first) end
      if before + after > old then break end
      before, taken, count, first = before + after, taken - n, count - 1, next
    end
  end
  if fast then left = rate - taken end
end

local function take()
  fast = count + added < FULL or added >= HOT and rate > FULL
  if fast then
    add()
    left = left - cost
  end
end

-- wait: until as many permits as are short have come back; those of now come last.
local function wait()
  local short, at, i = cost - left, before, first
  later = length
  while i <= last do
    local after, n, next = entry(packed, i)
    at, short, i = at + after, short - n, next
    if short <= 0 then
      later = at + length - NOW
      break
    end
  end
end

local KEEPS_TTL = true -- a refund or grant does not make it live longer

-- merge_entries makes one entry of all whose times lie in one of SLOTS parts of the length, and
-- keeps the latest TOMBSTONES of what was given back.
local function merge_entries(w, all)
  local width, tombstones, kept, previous = math.ceil(length / SLOTS), 0, {}, nil
  for _, e in ipairs(all) do
    if e.id and e.n == 0 then tombstones = tombstones + 1 end
  end
  for _, e in ipairs(all) do
    if e.id and e.n == 0 then
      if tombstones <= TOMBSTONES then
        insert_entry(kept, e)
      else
        w.refund_horizon, tombstones = math.max(w.refund_horizon, e.at), tombstones - 1
      end
    elseif e.n > 0 and previous and floor(previous.at / width) == floor(e.at / width) then
      for i = #kept, 1, -1 do
        if kept[i] == previous then table.remove(kept, i) break end
      end
      previous = { at = e.at, n = previous.n + e.n, id = false }
      insert_entry(kept, previous)
    elseif e.n > 0 then
      previous = e
      insert_entry(kept, e)
    end
  end
  return kept
end

local function merge(w) put_entries(merge_entries(w, list_entries())) end

local function write_merged(w, all) put_entries(#all > FULL and merge_entries(w, all) or all) end

-- refund_part gives back n permits of e. What is left of it is not given back by its ID any more.
local function refund_part(w, all, e, n)
  if rate <= FULL then
    w.refund_horizon = math.max(w.refund_horizon, e.at)
  else
    insert_entry(all, { at = e.at, n = 0, id = e.id })
  end
  e.n, e.id = e.n - n, false
  write_merged(w, all)
  return n
end

-- refund gives back n of what id took. Of what was merged it is in the first merged entry that is
-- not older; then a tombstone remains.
local function refund(w, id, n, at)
  local all, merged = list_entries(), at > NOW - length and at > w.refund_horizon
  for i = #all, 1, -1 do
    local e = all[i]
    if e.id == id then
      if n < e.n then return refund_part(w, all, e, n) end
      n, e.n = e.n, 0
      if n > 0 and rate <= FULL then
        w.refund_horizon = math.max(w.refund_horizon, e.at)
        table.remove(all, i)
      end
      put_entries(all)
      return n
    end
  end
  for _, e in ipairs(merged and all or {}) do
    if not e.id and e.at >= at then
      n = math.min(n, e.n)
      e.n = e.n - n
      insert_entry(all, { at = at, n = 0, id = id })
      write_merged(w, all)
      return n
    end
  end
  return 0
end

-- grant takes n permits out of the youngest entries. What remains of one cannot be given back
-- by its ID any more.
local function grant(n)
  local all = list_entries()
  for i = #all, 1, -1 do
    local e = all[i]
    local some = math.min(n, e.n)
    if some > 0 then e.n, e.id, n = e.n - some, false, n - some end
  end
  put_entries(all)
end

local function enter(grants, w)
  local all = list_entries()
  insert_grants(all, grants)
  write_merged(w, all)
end
