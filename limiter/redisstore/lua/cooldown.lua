-- A cooldown: a log of the permits since it began anew. One is a string:
--   state  string  as that of a sliding log, see sliding_log.lua: what is taken is how
--                  many permits there are, the last of them when. In form 2, until when
--                  the key is banned stands before the entries. The first PAUSES permits
--                  lie in one without an id.
-- All come back together, one length after the last. limiter's cooldown.go is the
-- same.

local cooldown = { keys = 1 }
do

-- level is how many permits there are; last is when the last of them was taken.
local function settle(w)
  w.level, w.last = 0, 0
  for i = 1, #w.all do
    local e = w.all[i]
    if e.at > NOW then e.at, w.changed = NOW, true end -- the clock was set back: it was taken now at the latest
    w.level, w.last = w.level + e.n, e.at
  end
  if w.level > 0 and w.last <= NOW - w.l.length then w.all, w.level = {}, 0 end
  w.left = cooldown.wait(w) == 0 and 1 or 0
end

-- parse is where the entries of state begin, the time before the first, and the end of a ban.
local function parse(state)
  if byte(state) == 3 then
    local at, _, _, _, i = one_of(state, 1)
    return i, at, 0
  end
  local form, at, _, _, _, i = struct.unpack(HEAD, state)
  if form == 1 then return i, at, 0 end
  if form ~= 2 then error('a state of another form') end
  local ban
  ban, i = struct.unpack('<I6', state, i)
  return i, at, ban
end

function cooldown.open(w, state)
  w.all, w.ban = {}, 0
  if state then
    local i, at
    i, at, w.ban = parse(state)
    if w.ban > NOW then w.banned = w.ban - NOW end
    while i <= #state do
      local after, n, next, id = entry(state, i)
      at, i = at + after, next
      w.all[#w.all + 1] = { at = at, n = n, id = id and sub(state, id, id + 7) }
    end
  end
  settle(w)
end

function cooldown.wait(w)
  if w.level == 0 then return 0 end
  return math.max(0, w.last + pause(w.l.steps, w.level) - NOW)
end

function cooldown.take(w, _, member)
  w.level, w.last, w.changed = w.level + 1, NOW, true
  w.all[#w.all + 1] = { at = NOW, n = 1, id = sub(member, 2, 9) }
  w.left = cooldown.wait(w) == 0 and 1 or 0
end

local function save(w)
  local all, level = w.all, 0
  while #all > PAUSES do
    local first = table.remove(all, 1)
    all[1].n, all[1].id = all[1].n + first.n, false
  end
  local before = all[1] and all[1].at or NOW
  local parts, at = { '', '' }, before
  for i = 1, #all do
    parts[i + 2] = packed(all[i].at - at, all[i].n, all[i].id)
    at, level = all[i].at, level + all[i].n
  end
  if w.ban > NOW then parts[2] = struct.pack('<I6', w.ban) end
  parts[1] = struct.pack(HEAD, w.ban > NOW and 2 or 1, before, at, level, #all)
  save_state(w, table.concat(parts), math.max(w.l.ttl, w.ban - NOW + SLACK))
end

function cooldown.keep(w)
  if w.changed then save(w) end
end

local function load(w) cooldown.open(w, load_state(w)) end

function cooldown.refund(w, id)
  load(w)
  for i = #w.all, 1, -1 do
    local e = w.all[i]
    if e.id == id then
      table.remove(w.all, i)
      save(w)
      return e.n
    end
  end
  return 0
end

-- grant forgets the n permits that were taken last.
function cooldown.grant(w, n)
  load(w)
  for i = #w.all, 1, -1 do
    local some = math.min(n, w.all[i].n)
    w.all[i].n, n = w.all[i].n - some, n - some
    if w.all[i].n == 0 then table.remove(w.all, i) end
  end
  save(w)
end

function cooldown.reset(w)
  empty(w)
  cooldown.open(w, false)
  save(w)
end

-- ban lets the key have nothing until a time; what is counted stays.
function cooldown.ban(w, till)
  load(w)
  w.ban = till
  save(w)
end

-- report enters grants that were made elsewhere, each once.
function cooldown.report(w, list)
  load(w)
  local known = {}
  for _, e in ipairs(w.all) do
    if e.id then known[e.id] = true end
  end
  for _, g in ipairs(list) do
    if not known[g.id] then
      local i = #w.all + 1
      while i > 1 and w.all[i - 1].at > g.at do i = i - 1 end
      table.insert(w.all, i, { at = g.at, n = g.n, id = g.id })
      known[g.id] = true
    end
  end
  settle(w)
  save(w)
end

KINDS[6] = cooldown
end
