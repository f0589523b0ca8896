-- clock returns Redis's own time in whole milliseconds: the only clock that all
-- proxies share.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local NOW = clock()
local function general(NOW)
-- Redis's functions and Lua's by short names, and numbers as text and as bytes.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub, format = string.byte, string.char, string.sub, string.format

-- int writes a whole number as text. The type that %d takes has 64 bits on most machines; it
-- needs a sixth of the time of %.0f there.
local int_format
local function int(n)
  if not int_format then int_format = format('%d', 1099511627776) == '1099511627776' and '%d' or '%.0f' end
  return format(int_format, n)
end

-- number reads an unsigned number of `width` bytes at i, lowest byte first; little writes one.
local function number(text, i, width)
  local n = 0
  for k = i + width - 1, i, -1 do n = n * 256 + byte(text, k) end
  return n
end



-- The local variables through which scripts and algorithms pass values to each other. Functions
-- without parameters that are called on a line of their own are inlined, see doc.go.

-- The limit in use, as read_limit reads it, and its number.
local rate, length, most, ttl, field, steps
local limit = 1
-- The claim: where it and the ID of its request begin in `requests`, and what it costs.
local requests, id, claim, cost = ARGV[3], 3, 11, 0
-- The state of the window: in `packed`, from first to last. packed is false if there is none.
local packed, first, last
-- What the functions of an algorithm set:
--   open   fast: false if only a general script can decide; left: the permits that are left
--   take   left, without the cost of the claim; if only a general script can do that, fast is
--          false and nothing else is changed
--   save   state, after open and any number of takes
--   wait   later: how many ms until `cost` permits are left
local fast, left, later, state

-- read_limit reads the limit at limit_at: its algorithm (1 byte), rate (4), length in ms (6)
-- and the most of one claim (4), each lowest byte first; then, each after its own length, its
-- time to live in ms as text (1), its field (1) and the steps of a cooldown (2), 6 bytes each.
local limits_text, limit_at, algorithm = ARGV[1], 1, nil
local function read_limit()
  local a, b, c, d, e, f, g, h, i, j, k, m, n, o, size, x, y
  algorithm, a, b, c, d, e, f, g, h, i, j, k, m, n, o, size = byte(limits_text, limit_at, limit_at + 15)
  rate, most = a + b * 256 + c * 65536 + d * 16777216, k + m * 256 + n * 65536 + o * 16777216
  length = e + f * 256 + g * 65536 + (h + i * 256 + j * 65536) * 16777216
  limit_at = limit_at + 16 + size
  ttl, size = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at)
  limit_at = limit_at + 1 + size
  field, x, y = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at, limit_at + 1)
  limit_at = limit_at + 2 + x + y * 256
  steps = sub(limits_text, limit_at - x - y * 256, limit_at - 1)
end

-- General scripts decide whatever is asked, whatever the keys hold. This is how they read the
-- limits and windows of a call.
-- SLACK is how many ms keys outlive what they must remember. More refunds than SLOTS or TOMBSTONES
-- are remembered by one time alone; logs are merged into SLOTS parts of their length.
local SLACK, SLOTS, TOMBSTONES, MOST_COUNT = 1000, 64, 32, 4294967295
local CONCURRENT, DISTINCT = 4, 5 -- numbers of algorithms

-- algorithms are tables of functions by the algorithms' numbers; those that no limit of the call
-- asks for are not defined.
local algorithms, asked_for, limits = {}, {}, {}
while limit_at <= #limits_text do
  read_limit()
  asked_for[algorithm] = true
  limits[#limits + 1] = {
    number = #limits + 1, algorithm = algorithm, rate = rate, length = length, most = most, steps = steps, ttl = ttl,
    field = field, horizon = algorithm == 0 and length or ttl - SLACK, old = false,
    merges = rate > 128 and algorithm ~= CONCURRENT,
  }
end

-- new_window makes a table of a window of the limit l and its keys, one or three. The table has
-- from the beginning what most windows need, because a table that grows costs much more.
local function new_window(l, state, log, cached_sum)
  local functions = algorithms[l.algorithm]
  if functions.keys == 1 then
    return {
      l = l, algorithm = functions, state = state, left = 0, raw = false, ban = 0, banned = nil, refund_horizon = 0,
      tombstones = '',
    }
  end
  if not l.old then l.old = int(NOW - l.length) end
  return {
    l = l, algorithm = functions, state = state, log = log, cached_sum = cached_sum, left = 0, given = 0, gone = 0,
    size = false, members = false,
  }
end

-- window makes a table of the i-th window, of which ARGV[2] has three bytes: the number of its
-- limit and (2) of the first of its KEYS.
local function window(i)
  local number, x, y = byte(ARGV[2], 3 * i - 2, 3 * i)
  local k = x + y * 256
  return new_window(limits[number], KEYS[k], KEYS[k + 1], KEYS[k + 2])
end

-- A packed string is what one key holds: the states of all windows that a key has of limits
-- whose names differ in their fields only, which follow the last colon.
--   one window   its field, beginning with the field's length, and its state
--   several      a byte 255; then of each the ms until which it lives (6 bytes), the
--                length of what follows (3), its field, and its state
-- Together they cost about what one of them costs: one string is read and written.
local MANY = char(255)
local strings = {} -- of keys that were read: a list of { field, text, dies }

-- What the files of an algorithm may define, see packed_algorithm.lua.
local LOGGED, KEEPS_TTL, ONLY_BANNED = false, false, false
local merge, begin_now, current, confirm, known_id = nil, nil, nil, nil, nil

-- unpacked lists the windows in raw that still live.
local function unpacked(raw)
  local list, at = {}, 2
  if not raw then return list end
  if byte(raw) ~= 255 then
    if #raw < byte(raw) + 2 then error('a packed string that is cut') end
    list[1] = { field = sub(raw, 1, byte(raw) + 1), text = raw, dies = false }
    return list
  end
  while at <= #raw do
    local dies, size, from = struct.unpack('<I6I3', raw, at)
    at = from + size
    if at > #raw + 1 then error('a packed string that is cut') end
    local text = sub(raw, from, at - 1)
    if dies > NOW then list[#list + 1] = { field = sub(text, 1, byte(text) + 1), text = text, dies = dies } end
  end
  return list
end

-- inside is what the packed string of w has of w; raw is that string if it was read already.
local function inside(w, raw)
  local list = strings[w.state]
  if not list then
    if not raw and call('EXISTS', w.state) == 1 then error('the state is no string') end
    list = unpacked(raw)
    strings[w.state] = list
  end
  for i = 1, #list do
    if list[i].field == w.l.field then return list[i] end
  end
end

-- load_state is the state of w, nil if there is none.
local function load_state(w)
  local found = inside(w, not strings[w.state] and call('GET', w.state))
  return found and sub(found.text, #w.l.field + 1)
end

-- save_state writes the state of w, to live for so many ms, or as long as it had.
local function save_state(w, state, life)
  local key, found = w.state, inside(w)
  local list = strings[key]
  if not found then
    found = { field = w.l.field }
    table.insert(list, found)
  end
  found.text = found.field .. state
  if life then found.dies = NOW + life end
  if #list == 1 then
    if life then call('SET', key, found.text, 'PX', int(life)) else call('SET', key, found.text, 'KEEPTTL') end
    return
  end
  local parts, last = { MANY }, 0
  for i = 1, #list do
    local o = list[i]
    if not o.dies then o.dies = NOW + math.max(1, call('PTTL', key)) end -- it was alone
    parts[2 * i], parts[2 * i + 1] = struct.pack('<I6I3', o.dies, #o.text), o.text
    last = math.max(last, o.dies)
  end
  call('SET', key, table.concat(parts), 'PX', int(last - NOW))
end

-- read_state learns of w what its strings say: packed or, with three keys, value and cached_sum.
local function read_state(w, value, cached_sum)
  if not w.cached_sum then
    inside(w, value)
    return w.algorithm.open(w, load_state(w))
  end
  if cached_sum and byte(cached_sum) == 98 then -- b of ban
    local ban = tonumber(string.match(cached_sum, '^ban:(%d+)$'))
    if ban and ban > NOW then w.banned = ban - NOW end
  end
  w.algorithm.open(w, value, cached_sum)
end

-- read_window is read_state that makes w bad if something of it is of another type, which looks
-- like nothing in an MGET, or cannot be read. Reading changes nothing, so only requests that ask
-- for w fail.
local function read_window(w, value, cached_sum)
  if not pcall(read_state, w, value, cached_sum) then w.bad, w.left = true, 0 end
end


local all_requests = ARGV[3]
local asked, costs, waits, values, entries = {}, {}, {}, {}, {} -- of the request that is being decided

-- decide answers the request that begins at `from`: a byte says how many claims it has, and
-- nine begin the entry that records a claim of it; then for each claim follow four that end its
-- entry, its cost, the number of its window (2 bytes), and a value (8 bytes) where values are
-- counted. All claims are taken, or
-- none. The reply goes behind `to`: 1 or 0, then for each claim what is left, or -1 if the key
-- is banned, and how long until the same claim passes. A request with a bad window takes
-- nothing: 2, and -2 for each claim of one. It returns where the next request begins, and the
-- end of the reply.
local function decide(windows, from, reply, to, dry)
  local n, allowed, bad = byte(all_requests, from), true, false
  local id = from + 1
  from = from + 10
  for i = 1, n do
    local c, d, e, f, a, b = byte(all_requests, from, from + 5)
    local w, cost = windows[a + b * 256], c + d * 256 + e * 65536 + f * 16777216
    asked[i], costs[i], entries[i], values[i] = w, cost, from, nil
    from = from + 6
    if w.algorithm.valued then
      values[i] = sub(all_requests, from, from + 7)
      from = from + 8
    end
    bad = bad or w.bad
    local wait = cost > w.left and not w.bad and w.algorithm.wait(w, cost, values[i]) or 0
    if wait > 0 or w.banned then allowed = false end
    waits[i] = wait
  end
  if bad then
    reply[to + 1] = 2
    for i = 1, n do reply[to + 2 * i], reply[to + 2 * i + 1] = asked[i].bad and -2 or 0, 0 end
    return from, to + 2 * n + 1
  end
  reply[to + 1] = allowed and 1 or 0
  for i = 1, n do
    local w, wait = asked[i], waits[i]
    if allowed and not dry then
      local cost, value = costs[i], values[i]
      w.algorithm.take(w, cost, sub(all_requests, id, id + 8) .. sub(all_requests, entries[i], entries[i] + 3), value)
      if cost > w.left then wait = w.algorithm.wait(w, cost, value) end
    end
    local left = w.left
    if w.banned then left, wait = -1, math.max(w.banned, wait) elseif left < 0 then left = 0 end
    reply[to + 2 * i], reply[to + 2 * i + 1] = left, wait
  end
  return from, to + 2 * n + 1
end

if asked_for[3] then
-- Numbers as bytes, for windows in packed strings. A Redis without struct, as miniredis is,
-- still decides the algorithms of three keys.
local pack, unpack_at = struct.pack, struct.unpack
-- GCRA: `debt` permits are owed now and come back evenly; `free_at` is when none were owed for
-- the last time. limiter's gcra.go is the same arithmetic, in the same order.
--   state  form 1, the time for which debt is known, free_at, debt
local FORMAT, HEAD, TINY = '<BI6I6d', 21, 1e-6
local free_at, debt

local function open()
  free_at, debt = NOW, 0
  if packed then
    fast = last - first == HEAD - 1
    if fast then
      local form, known_at
      form, known_at, free_at, debt = unpack_at(FORMAT, packed, first)
      fast = form == 1 and known_at <= NOW
      if fast then
        if debt > most then debt = most end -- of a higher limit
        debt = debt - (NOW - known_at) * rate / length
        if not (debt > 0) then free_at, debt = NOW, 0 end -- also if it is no number
      end
    end
  end
  left = floor(most - debt + TINY)
end

local function take()
  debt = debt + cost
  left = floor(most - debt + TINY)
end

local function save() state = field .. pack(FORMAT, 1, NOW, free_at, debt) end

-- What is short says about when; the loops make it exact, whatever was rounded.
local function wait()
  later = math.max(1, math.ceil((debt + cost - most - TINY) * length / rate))
  while later > 1 and floor(most - math.max(0, debt - (later - 1) * rate / length) + TINY) >= cost do
    later = later - 1
  end
  while floor(most - math.max(0, debt - later * rate / length) + TINY) < cost do later = later + 1 end
end



-- What GCRA, fixed windows and sliding windows do alike beside the fast path. They keep no
-- entries; so what was given back is known by tombstones of 14 bytes each: time and ID, oldest first.
local function check_form()
  if #packed ~= HEAD or byte(packed) ~= 1 then error('a state of another form') end
end



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




-- ban refuses the key until a time; what is counted stays.
function functions.ban(w, till)
  load(w)
  w.ban = till
  write_state(w, full_life(w))
end



algorithms[3] = functions
end
-- decide_request decides one request that a fast script found to be unusual: the one at
-- `from`. Its windows are read anew. The reply goes behind `to`; the new end is returned.
return function(from, reply, to)
  local n, size, windows, asked = byte(all_requests, from), 6, {}, {}
  strings = {} -- what was read for the request before may have changed
  if algorithms[DISTINCT] then size = 14 end -- with a value
  for i = 1, n do
    local x, y = byte(all_requests, from + size * (i - 1) + 14, from + size * (i - 1) + 15)
    local w = window(x + y * 256)
    local got = call('MGET', w.state, w.cached_sum or w.state)
    read_window(w, got[1], w.cached_sum and got[2])
    windows[x + y * 256], asked[i] = w, w
  end
  local _, last = decide(windows, from, reply, to, false)
  for i = 1, n do
    if not asked[i].bad then asked[i].algorithm.keep(asked[i]) end
  end
  return last
end
end
-- Redis's functions and Lua's by short names, and numbers as text and as bytes.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub, format = string.byte, string.char, string.sub, string.format

-- int writes a whole number as text. The type that %d takes has 64 bits on most machines; it
-- needs a sixth of the time of %.0f there.
local int_format




-- The local variables through which scripts and algorithms pass values to each other. Functions
-- without parameters that are called on a line of their own are inlined, see doc.go.

-- The limit in use, as read_limit reads it, and its number.
local rate, length, most, ttl, field, steps
local limit = 1
-- The claim: where it and the ID of its request begin in `requests`, and what it costs.
local requests, id, claim, cost = ARGV[3], 3, 11, 0
-- The state of the window: in `packed`, from first to last. packed is false if there is none.
local packed, first, last
-- What the functions of an algorithm set:
--   open   fast: false if only a general script can decide; left: the permits that are left
--   take   left, without the cost of the claim; if only a general script can do that, fast is
--          false and nothing else is changed
--   save   state, after open and any number of takes
--   wait   later: how many ms until `cost` permits are left
local fast, left, later, state

-- read_limit reads the limit at limit_at: its algorithm (1 byte), rate (4), length in ms (6)
-- and the most of one claim (4), each lowest byte first; then, each after its own length, its
-- time to live in ms as text (1), its field (1) and the steps of a cooldown (2), 6 bytes each.
local limits_text, limit_at, algorithm = ARGV[1], 1, nil

-- Numbers as bytes, for windows in packed strings. A Redis without struct, as miniredis is,
-- still decides the algorithms of three keys.
local pack, unpack_at = struct.pack, struct.unpack
-- GCRA: `debt` permits are owed now and come back evenly; `free_at` is when none were owed for
-- the last time. limiter's gcra.go is the same arithmetic, in the same order.
--   state  form 1, the time for which debt is known, free_at, debt
local FORMAT, HEAD, TINY = '<BI6I6d', 21, 1e-6
local free_at, debt







-- one decides one request of one claim, whose window is alone in its packed string or new. If
-- something is unusual, nothing is written, and general decides.
-- KEYS, ARGV, reply  as for command/take.lua
do
  local a, b, c, d, e, f, g, h, i, j, k, m, n, o, size, x, y
  algorithm, a, b, c, d, e, f, g, h, i, j, k, m, n, o, size = byte(limits_text, limit_at, limit_at + 15)
  rate, most = a + b * 256 + c * 65536 + d * 16777216, k + m * 256 + n * 65536 + o * 16777216
  length = e + f * 256 + g * 65536 + (h + i * 256 + j * 65536) * 16777216
  limit_at = limit_at + 16 + size
  ttl, size = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at)
  limit_at = limit_at + 1 + size
  field, x, y = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at, limit_at + 1)
  limit_at = limit_at + 2 + x + y * 256
  steps = sub(limits_text, limit_at - x - y * 256, limit_at - 1)
end
do
  local c, d, e
  cost, c, d, e = byte(requests, claim, claim + 3)
  if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
end
local key, allowed = KEYS[1], 0
packed, fast, later = call('MGET', key)[1], true, 0
if packed then
  first, last = #field + 1, #packed
  fast = sub(packed, 1, #field) == field
end
if fast then
  do
    free_at, debt = NOW, 0
    if packed then
      fast = last - first == HEAD - 1
      if fast then
        local form, known_at
        form, known_at, free_at, debt = unpack_at(FORMAT, packed, first)
        fast = form == 1 and known_at <= NOW
        if fast then
          if debt > most then debt = most end -- of a higher limit
          debt = debt - (NOW - known_at) * rate / length
          if not (debt > 0) then free_at, debt = NOW, 0 end -- also if it is no number
        end
      end
    end
    left = floor(most - debt + TINY)
  end
end
if fast and cost <= left then
  allowed = 1
  do
    debt = debt + cost
    left = floor(most - debt + TINY)
  end
end
if fast and cost > left then
  do
    later = math.max(1, math.ceil((debt + cost - most - TINY) * length / rate))
    while later > 1 and floor(most - math.max(0, debt - (later - 1) * rate / length) + TINY) >= cost do
      later = later - 1
    end
    while floor(most - math.max(0, debt - later * rate / length) + TINY) < cost do later = later + 1 end
  end
end
if fast and allowed == 1 then
  do
    state = field .. pack(FORMAT, 1, NOW, free_at, debt)
  end
  if packed then
    call('SET', key, state, 'PX', ttl)
  else -- a key of another type looks like none in an MGET
    fast = call('SET', key, state, 'PX', ttl, 'NX')
  end
end
if fast then return { NOW, allowed, left < 0 and 0 or left, later } end
local reply = { NOW }
general(NOW)(1, reply, 1)
return reply
