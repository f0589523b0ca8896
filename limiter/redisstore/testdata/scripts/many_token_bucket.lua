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

local function little(n, width)
  local out = {}
  for i = 1, width do
    out[i] = char(n % 256)
    n = floor(n / 256)
  end
  return table.concat(out)
end

-- permits_of reads the count at the end of a member of a sorted set. One of others with the highest
-- bit set was a negative number, and counts as nothing.
local function permits_of(member)
  local a, b, c, d = byte(member, -4, -1)
  if not d or d > 127 then return 0 end
  return a + b * 256 + c * 65536 + d * 16777216
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

if asked_for[0] or asked_for[4] then
-- What windows of three keys have, of which the second is a sorted set: see doc.go.
local FULL, REFUND_HORIZON = 128, char(5) .. 'floor' .. char(0, 0, 0, 0)
local now_text = int(NOW)
local functions = { keys = 3 }



function functions.ban(w, till)
  if till == 0 then
    call('DEL', w.cached_sum)
  else
    call('SET', w.cached_sum, 'ban:' .. int(till), 'PX', int(till - NOW + SLACK))
  end
end
-- A token bucket, or a limit of concurrent permits, for all that is beside the fast path: what
-- is left, and how long to wait; see token_bucket.lua. A member is one byte L, an ID of L bytes, and
-- the count as 4 bytes, lowest first. L = 8 is one decision (count 0: it was given back), L = 6
-- several that were merged (the ID is their score), L = 14 several of one script call (the score and
-- the ID of the first). REFUND_HORIZON says that nothing merged until its score is given back any more.
-- Members of others have any L. Functions that read are called before any that writes.
local SMALL, HOT, PART, MOST_COUNTED = 12, 4, 64, 1000
local NONE = {} -- is never written to

local function merged(at, n) return char(6) .. little(at, 6) .. little(n, 4) end
local function is_merged(member)
  local size = byte(member, 1)
  return (size == 6 or size == 14) and #member == size + 5
end

-- total is the sum of members' counts.
local function total(members)
  local sum = 0
  for i = 1, #members do
    local a, b, c, d = byte(members[i], -4, -1)
    sum = sum + (d == 0 and c == 0 and b == 0 and a or permits_of(members[i]))
  end
  return sum
end

-- has_future tells whether something was taken before the clock was set back.
local function has_future(w) return call('ZCOUNT', w.log, '(' .. now_text, '+inf') > 0 end

local function is_tombstone(member)
  return member ~= REFUND_HORIZON and byte(member, 1) == 8 and permits_of(member) == 0
end

-- count learns what is left from the entries alone, for to read their times costs as much
-- again. If value does not fit them, or there are more, some have expired.
local function count(w, value)
  local live = call('ZRANGEBYSCORE', w.log, '(' .. w.l.old, '+inf')
  local left, size = w.l.rate - total(live), #live
  w.left, w.size = left, size
  if size == 0 then w.at, w.n, w.complete, w.recounted = NONE, NONE, true, true end
  if value ~= left or call('ZCARD', w.log) > size then w.gone = 1 end
end

-- recount reads everything and trusts nothing but the members.
local function recount(w)
  local all = call('ZRANGE', w.log, 0, -1, 'WITHSCORES')
  local old, gone, sum, ats, ns, k = NOW - w.l.length, 0, 0, {}, {}, 0
  for i = 1, #all, 2 do
    local at, n = tonumber(all[i + 1]), permits_of(all[i])
    if at <= old then
      gone = gone + 1
    else
      if at > NOW then -- the clock was set back: it was taken now at the latest
        at = NOW
        local future = w.future or {}
        w.future, future[#future + 1], future[#future + 2] = future, int(at), all[i]
      end
      if n > 0 then
        k = k + 1
        ats[k], ns[k], sum = at, n, sum + n
      end
    end
  end
  w.at, w.n, w.gone, w.complete, w.recounted, w.oldest = ats, ns, gone, true, true, ats[1]
  w.left, w.size = w.l.rate - sum - w.given, #all / 2 - gone
end

-- trusts tells whether value was counted for this rate, less than a length ago, or of very many entries. If so,
-- only what has expired since is read.
local function trusts(w, value)
  local rate, oldest, counted = string.match(w.had_cached_sum, '^(%d+):(%d+):(%d+)$')
  oldest, counted = tonumber(oldest), tonumber(counted)
  if not value or value > w.l.rate or tonumber(rate) ~= w.l.rate then return false end
  local size = call('ZCARD', w.log) -- an error now, if it is of another type, rather than while it is written
  if oldest > NOW or counted > NOW or has_future(w) then return false end
  if counted <= NOW - w.l.length and size <= MOST_COUNTED then return false end
  w.at, w.n, w.left = {}, {}, value
  if oldest > NOW - w.l.length then return true end
  local gone = call('ZRANGEBYSCORE', w.log, '-inf', w.l.old)
  w.left, w.gone = value + total(gone), #gone
  return w.left <= w.l.rate
end

-- open learns how many permits are left, with as little reading as is exact. When it looks like
-- a refusal, it reads the times at once.
function functions.open(w, value, cached_sum)
  if not value then
    if not cached_sum and call('EXISTS', w.state, w.log) == 0 then
      w.at, w.n, w.complete, w.recounted, w.left, w.size = NONE, NONE, true, true, w.l.rate, 0
      return
    end
    if call('EXISTS', w.state) == 1 then error('value is no string') end
  end
  value, w.had_cached_sum = tonumber(value), cached_sum or nil
  if cached_sum and trusts(w, value) then return end
  if cached_sum or not value or value < 1 or has_future(w) then return recount(w) end
  count(w, value)
end
-- How long a token bucket, or a limit of concurrent permits, has to be waited for, beside the fast path.
-- more reads the next few entries, oldest first; false when there are none.
local function more(w)
  if w.complete then return false end
  local read = w.read or w.gone
  local size = math.max(8, read - w.gone)
  local part = call('ZRANGE', w.log, read, read + size - 1, 'WITHSCORES')
  w.read = read + #part / 2
  w.complete = #part < 2 * size
  for i = 1, #part, 2 do
    local at, n = tonumber(part[i + 1]), permits_of(part[i])
    if at > NOW then
      recount(w)
      return true
    end
    if n > 0 then w.at[#w.at + 1], w.n[#w.n + 1] = at, n end
  end
  return #part > 0
end

-- last_expires is in how many ms the youngest of the permits comes back; 0 if it has, or the clock was set back.
local function last_expires(w)
  for from = 0, call('ZCARD', w.log), PART do
    local part = call('ZREVRANGE', w.log, from, from + PART - 1, 'WITHSCORES')
    for i = 1, #part, 2 do
      local at = tonumber(part[i + 1])
      if at > NOW then return 0 end
      if permits_of(part[i]) > 0 then return math.max(0, at + w.l.length - NOW) end
    end
  end
  return 0
end

-- wait is how many ms it takes until `cost` permits are left; 0 is now.
function functions.wait(w, cost)
  local short = cost - w.left
  if short <= 0 then return 0 end
  if cost >= w.l.rate and w.given == 0 and not w.complete then -- all of very many
    local last = last_expires(w)
    if last > 0 then return last end
  end
  if not w.at then
    recount(w)
    return functions.wait(w, cost)
  end
  local i = 1
  while true do
    while i > #w.at do
      if not more(w) then break end
      if w.recounted then return functions.wait(w, cost) end
    end
    if i > #w.at then break end
    short = short - w.n[i]
    if short <= 0 then return w.at[i] + w.l.length - NOW end
    i = i + 1
  end
  -- What is still missing was taken just now, or value lies: count again.
  if short > w.given and not w.recounted then
    recount(w)
    return functions.wait(w, cost)
  end
  return w.l.length
end

-- How a token bucket is written, beside the fast path: keep writes everything at the end.

-- take takes cost permits, which member records. Of many that will be merged,
-- only the first few are kept one by one.
function functions.take(w, cost, member)
  w.left, w.given = w.left - cost, w.given + cost
  local members = w.members
  if not members then
    w.members = { now_text, member }
  elseif #members <= 2 * HOT or not w.l.merges then
    members[#members + 1] = now_text
    members[#members + 1] = member
  end
end

-- add is ZADD of alternating scores and members, in parts that fit a call.
local function add(key, scored, flag)
  for i = 1, #scored, 1000 do
    local last = math.min(i + 999, #scored)
    if flag then
      call('ZADD', key, flag, unpack(scored, i, last))
    else
      call('ZADD', key, unpack(scored, i, last))
    end
  end
end

-- merge makes one entry of all whose times lie in one of SLOTS parts of the
-- length, what was just granted included. It keeps the latest time, so that
-- nothing comes back early.
local function merge(w)
  local all = call('ZRANGE', w.log, 0, -1, 'WITHSCORES')
  for i = 1, #w.members, 2 do
    all[#all + 1], all[#all + 2] = w.members[i + 1], w.members[i]
  end
  local width = math.ceil(w.l.length / SLOTS)
  local tombstones, out = 0, {}
  for i = 1, #all, 2 do
    if is_tombstone(all[i]) then tombstones = tombstones + 1 end
  end
  local slot, score, member, sum, dropped
  local function flush()
    if slot then
      out[#out + 1], out[#out + 2] = score, member
    end
  end
  for i = 1, #all, 2 do
    local m, s = all[i], all[i + 1]
    local n = permits_of(m)
    if m == REFUND_HORIZON then
      dropped = math.max(dropped or 0, tonumber(s))
    elseif n == 0 then
      if is_tombstone(m) and tombstones <= TOMBSTONES then
        out[#out + 1], out[#out + 2] = s, m
      elseif is_tombstone(m) then
        dropped, tombstones = math.max(dropped or 0, tonumber(s)), tombstones - 1
      end
    elseif slot == floor(tonumber(s) / width) then
      sum, score = sum + n, s
      member = merged(tonumber(s), sum)
    else
      flush()
      slot, score, sum = floor(tonumber(s) / width), s, n
      member = byte(m, 1) == 6 and is_merged(m) and merged(tonumber(s), n) or m
    end
  end
  flush()
  if dropped then out[#out + 1], out[#out + 2] = int(dropped), REFUND_HORIZON end
  call('DEL', w.log)
  add(w.log, out)
end

-- together makes one entry of what one call granted on a hot key, where each by
-- itself would soon be merged.
local function together(w)
  local first = sub(w.members[2], 2, 9)
  w.members = { now_text, char(14) .. little(NOW, 6) .. first .. little(w.given, 4) }
  return w.members
end

-- keep writes everything. A key lives a little longer than the last permit needs to come back,
-- and all keys of a window die together.
function functions.keep(w)
  local log, l, ttl, size, members = w.log, w.l, w.l.ttl, w.size, w.members
  if w.future then add(log, w.future, 'XX') end
  if w.given == 0 then return end
  -- What is to be trusted from now on must hold nothing that has expired.
  local is_long = size and size + #members / 2 > SMALL
  if is_long and not w.recounted or w.gone > 0 then call('ZREMRANGEBYSCORE', log, '-inf', l.old) end
  if l.merges and #members > 2 * HOT then members = together(w) end
  if l.merges and (size or call('ZCARD', log)) + #members / 2 > FULL then
    merge(w)
  elseif #members == 2 then
    call('ZADD', log, members[1], members[2])
  else
    add(log, members)
  end
  call('PEXPIRE', log, ttl)
  call('SET', w.state, int(w.left), 'PX', ttl)
  if not size then return end -- value was trusted, and is as long as it was
  if size + #members / 2 > SMALL then
    local oldest = w.oldest or call('ZRANGE', log, 0, 0, 'WITHSCORES')[2]
    call('SET', w.cached_sum, int(l.rate) .. ':' .. int(oldest) .. ':' .. now_text, 'PX', ttl)
  elseif w.had_cached_sum then -- quickly read again
    call('DEL', w.cached_sum)
  end
end
-- How a token bucket gives back: to who took, to the holder of a lease, or to an operator's key;
-- and what others granted.




-- What took more keeps the rest under another id, by which nobody gives it back. The parts of a
-- decision on a cluster were taken within NEAR ms.
local NEAR = 100





algorithms[0] = functions
algorithms[4] = functions
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
local function int(n)
  if not int_format then int_format = format('%d', 1099511627776) == '1099511627776' and '%d' or '%.0f' end
  return format(int_format, n)
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

-- What algorithms of three keys pass to each other besides, see limit.lua.
--   of the window  the names of its value and log, and the text of its value
--   of the claim   whether taking it removes what has expired
--   of times       now as Redis reads it; old is `old_length` before that
-- open, take and wait are as in limit.lua; write writes what take said.
local key, log, value
local trim
local now, old, old_length = int(NOW), nil, nil

-- A token bucket, or a limit of concurrent permits, is three keys:
--   value    string  permits left: rate - sum of the permits in `permits`
--   permits  zset    what was taken: score = time in ms, member = ID and count, as in
--                    general/bucket_read.lua
--   base     string  the cached sum, "rate:oldest:counted": value was counted for this rate, at the time
--                    `counted`, and nothing comes back before oldest + length. Only with more
--                    entries than are quickly read each time; never needed for a right answer.
--                    Or "ban:until".
-- Value and permits live until the last permit has come back, so without both nothing has to be
-- read. Times are read one at a time: Redis writes them as text, which costs more than the
-- permits of ten entries. A log of more than MOST_ENTRIES entries is general's.
local CLAIM_SIZE, MOST_ENTRIES = 6, 12
local entries -- false of a new window




-- many_set is many.lua for windows of three keys, each of which one request asks for.
-- KEYS, ARGV, reply  as for command/take.lua
local rates, lengths, ttls = {}, {}, {}
while limit_at <= #limits_text do
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
  rates[#rates + 1], lengths[#rates + 1], ttls[#rates + 1] = rate, length, ttl
end

local strings = {}
for i = 1, #KEYS / 3 do strings[2 * i - 1], strings[2 * i] = KEYS[3 * i - 2], KEYS[3 * i] end
local got, windows, reply, replied = call('MGET', unpack(strings)), ARGV[2], { NOW }, 1
local from, limit_in_use, decide_unusual = 1, 0, nil
-- Of each claim of a request of several: the numbers of its first key and of its limit, what is
-- left before it, and what take said.
local keys, limits, lefts, states, trims = {}, {}, {}, {}, {}
while from <= #requests do
  local claims, allowed, to = byte(requests, from), 1, replied + 1
  fast, id, claim, reply[to] = true, from + 2, from + 10, 1
  for j = 1, claims do
    local c, d, e, x, y
    cost, c, d, e, x, y = byte(requests, claim, claim + 5)
    if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
    x = x + y * 256
    local k = 3 * x - 2 -- of its first key, and of what windows says of it
    limit = byte(windows, k)
    if limit ~= limit_in_use then rate, length, ttl, limit_in_use = rates[limit], lengths[limit], ttls[limit], limit end
    key, log, value, fast, later = KEYS[k], KEYS[k + 1], got[2 * x - 1], not got[2 * x], 0
    if fast then
      do
        if value then
          local sum = 0
          do
            if old_length ~= length then old, old_length = int(NOW - length), length end
          end
          entries = redis.pcall('ZRANGEBYSCORE', log, '(' .. old, now)
          fast = not entries.err
          for i = 1, fast and #entries or 0 do
            local a, b, c, d = byte(entries[i], -4, -1)
            if not d or b + c + d > 0 then -- 256 permits or more, or of others
              fast = false
              break
            end
            sum = sum + a
          end
          left = rate - sum
          trim = fast and call('ZCARD', log) > #entries -- something has expired, or was taken before the clock was set back
          if trim then fast = call('ZCOUNT', log, '(' .. now, '+inf') == 0 end
        else -- a key of another type looks like none in an MGET
          fast, entries, left, trim = call('EXISTS', key, log) == 0, false, rate, false
        end
      end
    end
    if not fast then break end
    if claims > 1 then lefts[j], keys[j] = left, false end
    if cost > left then
      allowed = 0
    elseif allowed == 1 then
      do
        fast, left = not entries or #entries < MOST_ENTRIES, left - cost
        if claim == id + 8 then
          state = sub(requests, id - 1, claim + 3)
        else
          state = sub(requests, id - 1, id + 7) .. sub(requests, claim, claim + 3)
        end
      end
      if claims > 1 then keys[j], limits[j], states[j], trims[j] = k, limit, state, trim end
    end
    if fast and cost > left then
      do
        local short = cost - left
        later = length
        for i = 1, entries and #entries or 0 do
          short = short - byte(entries[i], -4)
          if short <= 0 then
            later = tonumber(call('ZSCORE', log, entries[i])) + length - NOW
            break
          end
        end
      end
    end
    if not fast then break end
    reply[to + 1], reply[to + 2] = left < 0 and 0 or left, later
    to, claim = to + 2, claim + CLAIM_SIZE
  end
  if not fast then
    decide_unusual = decide_unusual or general(NOW)
    replied = decide_unusual(from, reply, replied)
  else
    if allowed == 1 and claims == 1 then
      do
        call('ZADD', log, now, state)
        if trim then
          do
            if old_length ~= length then old, old_length = int(NOW - length), length end
          end
          call('ZREMRANGEBYSCORE', log, '-inf', old)
        end
        call('PEXPIRE', log, ttl)
        call('SET', key, int(left), 'PX', ttl)
      end
    elseif allowed == 1 then
      for j = 1, claims do
        local k = keys[j]
        limit = limits[j]
        key, log, state, trim, left = KEYS[k], KEYS[k + 1], states[j], trims[j], reply[replied + 2 * j]
        length, ttl, limit_in_use = lengths[limit], ttls[limit], 0
        do
          call('ZADD', log, now, state)
          if trim then
            do
              if old_length ~= length then old, old_length = int(NOW - length), length end
            end
            call('ZREMRANGEBYSCORE', log, '-inf', old)
          end
          call('PEXPIRE', log, ttl)
          call('SET', key, int(left), 'PX', ttl)
        end
      end
    else
      reply[replied + 1] = 0
      for j = 1, claims > 1 and claims or 0 do -- what was taken is not
        if keys[j] then reply[replied + 2 * j], reply[replied + 2 * j + 1] = lefts[j], 0 end
      end
    end
    replied = replied + 1 + 2 * claims
  end
  from = from + 10 + CLAIM_SIZE * claims
end
return reply
