-- The functions of an algorithm whose windows lie in packed strings, for all that is beside
-- the fast path. This follows the file of each such algorithm, in a block of its own; it is
-- made of what the files of the algorithm define. A
-- window has its state in form 1 as `raw`. In form 2 there follow the head until when the key is
-- banned and the refund horizon, a time until which nothing is given back any more (6 bytes each);
-- then entries, or tombstones of what was given back, see counter.lua.
local functions = { keys = 1 }

-- use makes w the window that the functions of the algorithm work on.
local function use(w)
  local l = w.l
  rate, length, most, field, steps, limit = l.rate, l.length, l.most, '', l.steps, l.number
  fast, packed, first, last = true, w.raw, 1, w.raw and #w.raw
  open()
  if not fast then -- the clock was set back: what was taken later was taken now at the latest
    check_form()
    if begin_now then begin_now(w) end
    save()
    fast, w.raw, w.moved = true, state, true
    packed, first, last = w.raw, 1, #w.raw
    open()
    if not fast then error('a state of another form') end
  end
  w.left = left
end

function functions.open(w, raw)
  w.ban, w.refund_horizon, w.tombstones, w.raw = 0, 0, '', raw or false
  if raw and byte(raw) == 2 then
    local at
    w.ban, at = unpack_at('<I6', raw, HEAD + 1)
    if not ONLY_BANNED then w.refund_horizon, at = unpack_at('<I6', raw, at) end
    if w.ban > NOW then w.banned = w.ban - NOW end
    w.raw = char(1) .. sub(raw, 2, HEAD)
    if LOGGED then w.raw = w.raw .. sub(raw, at) else w.tombstones = sub(raw, at) end
  end
  use(w)
end

function functions.wait(w, n)
  use(w)
  cost, later = n, 0
  if cost > left then wait() end
  return later
end

-- take takes n permits under the ID that begins behind the first byte of an entry of decide.
function functions.take(w, n, entry)
  use(w)
  cost, requests, id, known_id = n, entry, 2, nil
  take()
  if not fast then
    merge(w)
    save()
    w.raw = state
    use(w)
    take()
  end
  save()
  w.raw, w.left, w.changed = state, left, true
end

-- write_state writes what the algorithm made of w, to live for so many ms, or as long as it had.
local function write_state(w, life)
  save()
  local text = state
  if w.ban > NOW or not ONLY_BANNED and (w.refund_horizon > NOW - w.l.horizon or #w.tombstones > 0) then
    local more = pack('<I6', w.ban)
    if not ONLY_BANNED then more = more .. pack('<I6', w.refund_horizon) .. w.tombstones end
    text = char(2) .. sub(text, 2, HEAD) .. more .. sub(text, HEAD + 1)
  end
  save_state(w, text, life)
end

local function full_life(w) return math.max(w.l.ttl, w.ban - NOW + SLACK) end
local function life(w) return not KEEPS_TTL and full_life(w) or nil end

-- keep also writes what a clock that was set back has moved: otherwise the key would count as
-- taken now at each look, until the clock has caught up.
function functions.keep(w)
  if not w.changed and not w.moved then return end
  use(w)
  write_state(w, w.changed and full_life(w) or life(w))
end

local function load(w) functions.open(w, load_state(w)) end

function functions.refund(w, id, n, at)
  load(w)
  n = refund(w, id, n, at)
  if n > 0 then write_state(w, life(w)) end
  return n
end

function functions.grant(w, n)
  load(w)
  if not w.raw then return end
  grant(n, w)
  write_state(w, life(w))
end

function functions.reset(w)
  forget_state(w)
  functions.open(w, false)
  w.refund_horizon = NOW
  write_state(w, full_life(w))
end

-- ban refuses the key until a time; what is counted stays.
function functions.ban(w, till)
  load(w)
  w.ban = till
  write_state(w, full_life(w))
end

function functions.report(w, grants)
  load(w)
  enter(grants, w)
  write_state(w, full_life(w))
end

-- confirm counts a subject whose permits were given back, if the algorithm counts them: see note.lua.
function functions.confirm(w, at)
  if not confirm then return false end
  load(w)
  confirm(at)
  write_state(w, full_life(w))
  return true
end

-- current is what was taken, how many ms until it is forgotten, what may be taken at a time, and the
-- subjects that were confirmed, as far as the algorithm says so.
function functions.current(w)
  if not current then return end
  use(w)
  return current()
end
