-- A cooldown: the permits since it began anew are entries of a log, see log.lua; it begins anew
-- one length after the last. limiter's cooldown.go is the same.
local MOST_ENTRIES = 32 -- the first ones become one without an ID

-- find_step sets step: how many ms after the last of the permits the next may come. A step is
-- 6 bytes, and the last one stands for all that follow.
local step
local function find_step()
  local step_at = 6 * (taken + added) - 5
  if step_at > #steps then step_at = #steps - 5 end
  step = unpack_at('<I6', steps, step_at)
end

local function open()
  open_log()
  if packed and fast and newest <= NOW - length then
    taken, count, first = 0, 0, last + 1
  end
  left = 1
  if fast and taken > 0 then
    find_step()
    if newest + step > NOW then left = 0 end
  end
end

local function take()
  fast = count < MOST_ENTRIES
  if fast then
    add()
    left = 0
  end
end

local function wait()
  find_step()
  later = (added > 0 and NOW or newest) + step - NOW
end

local ONLY_BANNED = true -- form 2 says nothing but until when
local function write_merged(all, most)
  while #all > most do
    local oldest = table.remove(all, 1)
    all[1].n, all[1].id = all[1].n + oldest.n, false
  end
  put_entries(all)
end

local function merge() write_merged(list_entries(), MOST_ENTRIES - 1) end

local function refund(_, id)
  local all = list_entries()
  for i = #all, 1, -1 do
    if all[i].id == id then
      local e = table.remove(all, i)
      put_entries(all)
      return e.n
    end
  end
  return 0
end

-- grant forgets the n permits that were taken last.
local function grant(n)
  local all = list_entries()
  grant_entries(all, n)
  while #all > 0 and all[#all].n == 0 do table.remove(all) end
  put_entries(all)
end

local function enter(grants)
  local all = list_entries()
  insert_grants(all, grants)
  write_merged(all, MOST_ENTRIES)
end

-- current is what was taken, and when that is forgotten.
local function current() return taken, taken > 0 and newest + length - NOW or 0 end
