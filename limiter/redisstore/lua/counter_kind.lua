-- The counters for all that is not the usual way of a take: see counter.lua.

local fixed, sliding, gcra = { keys = 1 }, { keys = 1 }, { keys = 1 }
do

local MORE = '<I6I6'

-- read is open without what only deciding needs. It reads the ban, the floor and the
-- marks, from `at` on.
local function read(w, state, form, at)
  w.ban, w.floor, w.marks = 0, 0, ''
  if state and form ~= 1 and form ~= 2 then error('a state of another form') end
  if form == 2 then
    w.ban, w.floor, at = struct.unpack(MORE, state, at)
    w.marks = sub(state, at)
    if w.ban > NOW then w.banned = w.ban - NOW end
  end
end

-- save writes the state, which begins with head, in the form that it needs.
local function save(w, head)
  if w.ban > NOW or w.floor > NOW - w.l.horizon or #w.marks > 0 then
    head = char(2) .. sub(head, 2) .. struct.pack(MORE, w.ban, w.floor) .. w.marks
  end
  save_state(w, head, math.max(w.l.ttl, w.ban - NOW + SLACK))
end

-- once marks id as given back, unless it is, may have been, or is all back. The
-- oldest of many marks is forgotten for the floor.
local function once(w, id, at)
  if at <= NOW - w.l.horizon or at <= w.floor then return false end
  local kept, own = {}, struct.pack('<I6', at) .. id
  for i = 1, #w.marks, 14 do
    local mark = sub(w.marks, i, i + 13)
    if sub(mark, 7) == id then return false end
    local its = struct.unpack('<I6', mark)
    if own and its > at then
      kept[#kept + 1] = own
      own = nil
    end
    if its > NOW - w.l.horizon then kept[#kept + 1] = mark end
  end
  if own then kept[#kept + 1] = own end
  if #kept > SLOTS then w.floor = math.max(w.floor, (struct.unpack('<I6', table.remove(kept, 1)))) end
  w.marks = table.concat(kept)
  return true
end

-- counting makes an algorithm of its own functions and those that all share.
local function counting(kind)
  local function load(w) kind.open(w, load_state(w)) end
  function kind.open(w, state)
    kind.load(w, state)
    kind.settle(w)
    w.left = kind.remains(w)
  end
  function kind.take(w, cost)
    kind.add(w, cost)
    w.left, w.changed = kind.remains(w), true
  end
  -- keep also writes what settle has moved, because the clock was set back: otherwise the
  -- key would count as taken now at each look, until the clock has caught up.
  function kind.keep(w)
    if w.changed then save(w, kind.head(w)) end
  end
  function kind.refund(w, id, cost, at)
    load(w)
    if not kind.holds(w, at) or not once(w, id, at) then return 0 end
    local n = kind.back(w, at, cost)
    if n > 0 then save(w, kind.head(w)) end
    return n
  end
  function kind.grant(w, n)
    load(w)
    kind.give(w, n)
    save(w, kind.head(w))
  end
  function kind.reset(w)
    empty(w)
    kind.open(w, false)
    w.floor = NOW
    save(w, kind.head(w))
  end
  function kind.ban(w, till)
    load(w)
    w.ban = till
    save(w, kind.head(w))
  end
  -- report counts grants that were made elsewhere.
  function kind.report(w, list)
    load(w)
    kind.enter(w, list)
    save(w, kind.head(w))
  end
end

-- A fixed window: start is when its first permit was taken, 0 when it has none.
function fixed.load(w, state)
  local form, at
  w.start, w.taken = 0, 0
  if state then form, w.start, w.taken, at = struct.unpack(FIXED, state) end
  read(w, state, form, at)
end
function fixed.head(w) return struct.pack(FIXED, 1, w.start, math.min(w.taken, MOST)) end
function fixed.settle(w)
  if w.start > NOW then w.start, w.changed = NOW, true end
  if NOW - w.start >= w.l.length then w.start, w.taken = 0, 0 end
end
function fixed.remains(w) return w.l.rate - w.taken end
function fixed.wait(w, cost)
  if cost <= w.l.rate - w.taken then return 0 end
  return w.start + w.l.length - NOW
end
function fixed.add(w, cost)
  if w.start == 0 then w.start = NOW end
  w.taken = w.taken + cost
end
function fixed.holds(w, at) return w.start ~= 0 and at >= w.start and w.taken > 0 end
function fixed.back(w, _, cost)
  local n = math.min(cost, w.taken)
  w.taken = w.taken - n
  return n
end
function fixed.give(w, n) w.taken = w.taken - math.min(n, w.taken) end
-- What is older than the window of now counts in it all the same.
function fixed.enter(w, list)
  for _, g in ipairs(list) do
    if w.start == 0 then w.start = g.at end
    w.taken = w.taken + g.n
  end
end
counting(fixed)

-- The sliding window: start is the number of the window of now, before what was
-- taken in the one before.
local function pick(w, number)
  return number == w.start and 'taken' or number == w.start - 1 and 'before' or nil
end

local function take_out(w, number, n)
  local field = pick(w, number)
  if not field then return 0 end
  n = math.min(n, w[field])
  w[field] = w[field] - n
  return n
end

function sliding.load(w, state)
  local form, at
  w.start, w.taken, w.before = 0, 0, 0
  if state then form, w.start, w.taken, w.before, at = struct.unpack(SLIDING, state) end
  read(w, state, form, at)
end
function sliding.head(w)
  return struct.pack(SLIDING, 1, w.start, math.min(w.taken, MOST), math.min(w.before, MOST))
end
function sliding.settle(w)
  local number = floor(NOW / w.l.length)
  if number == w.start + 1 then
    w.before, w.taken = w.taken, 0
  elseif number > w.start then
    w.before, w.taken = 0, 0
  elseif number < w.start then
    w.changed = true
  end
  w.start = number
end
function sliding.remains(w) return w.l.rate - used(w.start, w.taken, w.before, NOW, w.l.length) end
function sliding.wait(w, cost)
  local room = w.l.rate - cost
  if used(w.start, w.taken, w.before, NOW, w.l.length) <= room then return 0 end
  return until_used(w.start, w.taken, w.before, w.l.length, room)
end
function sliding.add(w, cost) w.taken = w.taken + cost end
function sliding.holds(w, at)
  local field = pick(w, floor(at / w.l.length))
  return field and w[field] > 0
end
function sliding.back(w, at, cost) return take_out(w, floor(at / w.l.length), cost) end
function sliding.give(w, n) take_out(w, w.start - 1, n - take_out(w, w.start, n)) end
function sliding.enter(w, list)
  for _, g in ipairs(list) do
    local field = pick(w, floor(g.at / w.l.length))
    if field then w[field] = w[field] + g.n end
  end
end
counting(sliding)

-- GCRA: debt permits were owed at start and flow back evenly; before is when
-- nothing was owed last.
local function owes(w) return owed(w.debt, w.start, NOW, w.l.rate, w.l.length) end

function gcra.load(w, state)
  local form, at
  w.start, w.before, w.debt = 0, 0, 0
  if state then form, w.start, w.before, w.debt, at = struct.unpack(GCRA, state) end
  read(w, state, form, at)
end
function gcra.head(w) return struct.pack(GCRA, 1, w.start, w.before, w.debt) end
function gcra.settle(w)
  if w.start > NOW then w.start, w.changed = NOW, true end
end
function gcra.remains(w) return floor(w.l.most - owes(w) + TINY) end
function gcra.wait(w, cost)
  if cost <= gcra.remains(w) then return 0 end
  return until_owed(w.debt, w.start, w.l.rate, w.l.length, w.l.most, cost)
end
function gcra.add(w, cost)
  local debt = owes(w)
  if debt == 0 then w.before = NOW end
  w.debt, w.start = debt + cost, NOW
end
function gcra.holds(w, at) return owes(w) > 0 and at >= w.before end
function gcra.back(w, _, cost)
  w.debt, w.start = math.max(0, owes(w) - cost), NOW
  return cost
end
function gcra.give(w, n) w.debt, w.start = math.max(0, owes(w) - n), NOW end
-- Debts add up: what was owed here, and what the grants by themselves would owe.
function gcra.enter(w, list)
  local debt, last = 0, NOW
  for _, g in ipairs(list) do
    debt = math.max(0, debt - (g.at - last) * w.l.rate / w.l.length) + g.n
    last = g.at
  end
  debt = math.max(0, debt - (NOW - last) * w.l.rate / w.l.length)
  local here = owes(w)
  if here == 0 then w.before = list[1].at end
  w.debt, w.start = math.min(w.l.most, here + debt), NOW
end
counting(gcra)

KINDS[1], KINDS[2], KINDS[3] = fixed, sliding, gcra
end
