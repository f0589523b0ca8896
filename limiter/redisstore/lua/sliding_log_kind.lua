-- The sliding log for all that is not the usual way of a take: see sliding_log.lua.
-- A window has its string as `raw`, the entries that count from `from` on, the time
-- before them as `before` and that of the last as `newest`.

do
local HOT = 4
local log = { keys = 1 }

-- entries are those of w as tables, oldest first.
local function entries(w)
  local all, at, i = {}, w.before, w.from
  while i <= #w.raw do
    local after, n, next, id = entry(w.raw, i)
    at = at + after
    all[#all + 1] = { at = at, n = n, id = id and sub(w.raw, id, id + 7) }
    i = next
  end
  return all
end

-- put makes all the entries of w, in the order of their times.
local function put(w, all)
  local parts, at, taken = {}, all[1] and all[1].at or NOW, 0
  w.before, w.count, w.from = at, #all, 1
  for i = 1, #all do
    local e = all[i]
    parts[i] = packed(e.at - at, e.n, e.id)
    at, taken = e.at, taken + e.n
  end
  w.raw, w.newest, w.taken, w.left = table.concat(parts), at, taken, w.l.rate - taken
end

-- insert puts e where its time belongs.
local function insert(all, e)
  local i = #all + 1
  while i > 1 and all[i - 1].at > e.at do i = i - 1 end
  table.insert(all, i, e)
end

function log.open(w, state)
  w.floor, w.ban, w.raw, w.from = 0, 0, state or '', 1
  w.before, w.newest, w.taken, w.count = NOW, NOW, 0, 0
  if state then
    local form
    if byte(state) == 3 then
      form, w.before, w.newest, w.taken, w.count, w.from = 1, one_of(state, 1)
    else
      form, w.before, w.newest, w.taken, w.count, w.from = struct.unpack(HEAD, state)
    end
    if form ~= 1 and form ~= 2 then error('a state of another form') end
    if form == 2 then
      w.ban, w.floor, w.from = struct.unpack(MORE, state, BODY)
      if w.ban > NOW then w.banned = w.ban - NOW end
    end
  end
  local old = NOW - w.l.length
  while w.from <= #w.raw do
    local after, n, next = entry(w.raw, w.from)
    if w.before + after > old then break end
    w.before, w.taken, w.count, w.from = w.before + after, w.taken - n, w.count - 1, next
  end
  w.left = w.l.rate - w.taken
  if w.newest > NOW then -- the clock was set back: it was taken now at the latest
    local all = entries(w)
    for _, e in ipairs(all) do e.at = math.min(e.at, NOW) end
    put(w, all)
    w.moved = true
  end
end

function log.wait(w, cost)
  local short = cost - w.left
  if short <= 0 then return 0 end
  local raw, at, i = w.raw, w.before, w.from
  while i <= #raw do
    local after, n, next = entry(raw, i)
    at, short, i = at + after, short - n, next
    if short <= 0 then return at + w.l.length - NOW end
  end
  return w.l.length
end

-- take takes cost permits under the id of an entry of decide. Of many that will be
-- merged only the first few are kept one by one.
function log.take(w, cost, member)
  w.left, w.given = w.left - cost, w.given + cost
  local members = w.members
  if not members then
    w.members = { cost, sub(member, 2, 9) }
  elseif #members < 2 * HOT + 2 or not w.l.merges then
    members[#members + 1] = cost
    members[#members + 1] = sub(member, 2, 9)
  end
end

-- merge makes one entry of all whose times lie in one of SLOTS parts of the length,
-- and keeps the latest MARKS of what was given back.
local function merge(w, all)
  local width, marks, kept, last = math.ceil(w.l.length / SLOTS), 0, {}, nil
  for _, e in ipairs(all) do
    if e.id and e.n == 0 then marks = marks + 1 end
  end
  for _, e in ipairs(all) do
    if e.id and e.n == 0 then
      if marks <= MARKS then insert(kept, e) else w.floor, marks = math.max(w.floor, e.at), marks - 1 end
    elseif e.n > 0 and last and floor(last.at / width) == floor(e.at / width) then
      for i = #kept, 1, -1 do
        if kept[i] == last then table.remove(kept, i) break end
      end
      last = { at = e.at, n = last.n + e.n, id = false }
      insert(kept, last)
    elseif e.n > 0 then
      last = e
      insert(kept, e)
    end
  end
  return kept
end

-- save writes w, to live for so many ms, or as long as it had.
local function save(w, life)
  local body = sub(w.raw, w.from)
  if w.ban > NOW or w.floor > NOW - w.l.length then
    save_state(w, struct.pack(HEAD, 2, w.before, w.newest, w.taken, w.count) .. struct.pack(MORE, w.ban, w.floor) .. body, life)
  else
    save_state(w, struct.pack(HEAD, 1, w.before, w.newest, w.taken, w.count) .. body, life)
  end
end

-- life is how long a window lives: as long as anything in it says something.
local function life(w) return math.max(w.l.ttl, w.ban - NOW + SLACK) end

function log.keep(w)
  local new = w.members
  if not new then
    if w.moved then save(w) end
    return
  end
  if w.l.merges and #new > 2 * HOT then new = { w.given, false } end
  if w.count + #new / 2 > FULL then
    local all = entries(w)
    for i = 1, #new, 2 do all[#all + 1] = { at = NOW, n = new[i], id = new[i + 1] } end
    put(w, merge(w, all))
  else
    local parts, after = { sub(w.raw, w.from) }, NOW - w.newest
    for i = 1, #new, 2 do
      parts[#parts + 1] = packed(after, new[i], new[i + 1])
      after = 0
    end
    w.raw, w.from, w.newest = table.concat(parts), 1, NOW
    w.taken, w.count = w.taken + w.given, w.count + #new / 2
  end
  save(w, life(w))
end

-- load is open of a window that is to be changed.
local function load(w) log.open(w, load_state(w)) end

-- refund_merged takes cost out of what at was merged into: the first merged entry
-- that is not older.
local function refund_merged(w, all, id, cost, at)
  if at <= NOW - w.l.length or at <= w.floor then return 0 end
  for _, e in ipairs(all) do
    if not e.id and e.at >= at then
      local n = math.min(cost, e.n)
      e.n = e.n - n
      insert(all, { at = at, n = 0, id = id })
      put(w, #all > FULL and merge(w, all) or all)
      save(w)
      return n
    end
  end
  return 0
end

function log.refund(w, id, cost, at)
  load(w)
  local all = entries(w)
  for i = #all, 1, -1 do
    local e = all[i]
    if e.id == id then
      local n = e.n
      if n == 0 then return 0 end
      if w.l.rate > FULL then
        e.n = 0
      else
        w.floor = math.max(w.floor, e.at)
        table.remove(all, i)
      end
      put(w, all)
      save(w)
      return n
    end
  end
  return refund_merged(w, all, id, cost, at)
end

-- grant takes n permits out of the youngest entries. What is left of one is no
-- longer given back by its id.
function log.grant(w, n)
  load(w)
  local all = entries(w)
  for i = #all, 1, -1 do
    local e = all[i]
    local some = math.min(n, e.n)
    if some > 0 then e.n, e.id, n = e.n - some, false, n - some end
  end
  if #all == 0 then return end
  put(w, all)
  save(w)
end

function log.reset(w)
  empty(w)
  log.open(w, false)
  w.floor = NOW
  save(w, life(w))
end

-- ban lets the key have nothing until a time; what is counted stays.
function log.ban(w, till)
  load(w)
  w.ban = till
  save(w, life(w))
end

-- report enters grants that were made elsewhere, each once.
function log.report(w, list)
  load(w)
  local all, known = entries(w), {}
  for _, e in ipairs(all) do
    if e.id then known[e.id] = true end
  end
  for _, g in ipairs(list) do
    if not known[g.id] then insert(all, { at = g.at, n = g.n, id = g.id }) end
    known[g.id] = true
  end
  put(w, #all > FULL and merge(w, all) or all)
  save(w, life(w))
end

KINDS[7] = log
end
