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

local function merge(w) put_entries(merge_entries(w, list_entries(), length)) end

local function write_merged(w, all) put_entries(#all > FULL and merge_entries(w, all, length) or all) end

local function refund(w, id, n, at)
  local all, given = list_entries(), nil
  for i = #all, 1, -1 do
    local e = all[i]
    if e.id == id then
      given = math.min(n, e.n)
      e.n = e.n - given
      if given > 0 then forget_id(w, all, e) end
      if not e.id and e.n == 0 then table.remove(all, i) end
      break
    end
  end
  given = given or refund_merged(w, all, id, n, at)
  write_merged(w, all)
  return given
end

local function grant(n)
  local all = list_entries()
  grant_entries(all, n)
  put_entries(all)
end

local function enter(grants, w)
  local all = list_entries()
  insert_grants(all, grants)
  write_merged(w, all)
end
