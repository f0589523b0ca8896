-- report counts what was granted elsewhere while this Redis could not be asked,
-- whatever is left.
-- KEYS   state, log, base of each window
-- ARGV   limits and windows, see list_windows; then for
--        each window its grants, oldest first, 18 bytes each: id (8), permits (4),
--        age in ms (6); and the value (8) where values are counted
-- reply  1
-- The whole script is one step. A log knows its grants by their ids, so that one
-- that is reported twice counts once, as long as it is not merged.

-- grants reads those that have not come back in `length` ms.
local function grants(text, length, valued)
  local out = {}
  for i = 1, #text, valued and 26 or 18 do
    local age = number(text, i + 12, 6)
    if age < length then
      out[#out + 1] = { id = string.sub(text, i, i + 7), n = number(text, i + 8, 4), at = NOW - age, value = string.sub(text, i + 18, i + 25) }
    end
  end
  return out
end

-- enter puts grants into a log.
local function enter(w, list)
  local scored = {}
  for i, g in ipairs(list) do scored[2 * i - 1], scored[2 * i] = int(g.at), single(g.id, g.n) end
  add(w.log, scored, 'NX')
end

-- A bucket's value is counted anew from its entries. What says so is thrown away,
-- unless it is a ban.
function bucket.report(w, list)
  enter(w, list)
  recount(w)
  call('SET', w.state, int(w.left), 'PX', w.l.ttl)
  call('PEXPIRE', w.log, w.l.ttl)
  if string.sub(call('GET', w.base) or '', 1, 4) ~= 'ban:' then call('DEL', w.base) end
end

-- A value that was used elsewhere stands here.
function distinct.report(w, list)
  distinct.open(w)
  for _, g in ipairs(list) do put(w, g.value .. g.id, g.at) end
  w.changed = true
  distinct.keep(w)
end

local windows, first = list_windows()
for i, w in ipairs(windows) do
  local list = grants(ARGV[first - 1 + i], w.l.horizon, w.l.kind.valued)
  if #list > 0 then pcall(w.l.kind.report, w, list) end -- one of another type keeps no other from being told
end
return 1
