-- A token bucket, and a limit of concurrent permits, is three keys:
--   value    string  permits left: rate - sum of the permits in `permits`
--   permits  zset    what was taken: score = time in ms, member = id and count
--   base     string  "rate:oldest:counted": value was counted for this rate, at
--                    the time `counted`, and nothing comes back before
--                    oldest + length. Only with more entries than are quickly
--                    read each time; never needed for a right answer.
--                    Or "ban:until".
-- A member is one byte L, L bytes of id, and the count as 4 bytes, lowest first.
-- L = 8 is one decision (count 0: it was given back). L = 6 is several that were
-- merged (id = their score), L = 14 several of one script call (id = their score
-- and the id of the first). 'floor' says that nothing merged until its score is
-- given back early any more. Others' members have any L.
--
-- Functions that read are called before any that writes: reading decides,
-- `keep` writes everything at the end.

local SMALL, HOT = 12, 4
local FLOOR = char(5) .. 'floor' .. char(0, 0, 0, 0)
local CONCURRENT = 4

local NOW_TEXT = int(NOW)
local NONE = {} -- is never written to

local function single(id, n)
  if n < 256 then return char(#id) .. id .. char(n, 0, 0, 0) end
  return char(#id) .. id .. little(n, 4)
end
local function merged(at, n) return char(6) .. little(at, 6) .. little(n, 4) end
local function is_merged(member)
  local length = byte(member, 1)
  return (length == 6 or length == 14) and #member == length + 5
end

-- permits_of reads a member's count. A foreign one with the highest bit set was
-- a negative number, and counts as nothing.
local function permits_of(member)
  local a, b, c, d = byte(member, -4, -1)
  if not d or d > 127 then return 0 end
  return a + b * 256 + c * 65536 + d * 16777216
end

-- total is the sum of members' counts.
local function total(members)
  local sum = 0
  for i = 1, #members do
    local a, b, c, d = byte(members[i], -4, -1)
    if d ~= 0 or c ~= 0 or b ~= 0 then a = permits_of(members[i]) end
    sum = sum + a
  end
  return sum
end

local function is_mark(member)
  return member ~= FLOOR and byte(member, 1) == 8 and permits_of(member) == 0
end

-- count learns what is left from the entries alone: reading their times as well
-- costs as much again. Unless value fits them, some have expired.
local function count(w, value)
  local live = call('ZRANGEBYSCORE', w.log, w.l.since, '+inf')
  local left, size = w.l.rate - total(live), #live
  w.left, w.size = left, size
  if size == 0 then w.at, w.n, w.whole, w.fresh = NONE, NONE, true, true end
  if value ~= left then w.gone = 1 end
end

-- recount reads everything and trusts nothing but the members.
local function recount(w)
  local all = call('ZRANGE', w.log, 0, -1, 'WITHSCORES')
  local now, old, gone, sum = NOW, NOW - w.l.length, 0, 0
  local ats, ns, k = NONE, NONE, 0
  if #all > 0 then ats, ns = {}, {} end
  for i = 1, #all, 2 do
    local at, n = tonumber(all[i + 1]), permits_of(all[i])
    if at <= old then
      gone = gone + 1
    else
      if at > now then -- the clock was set back: it was taken now at the latest
        at = now
        local future = w.future or {}
        w.future, future[#future + 1], future[#future + 2] = future, int(at), all[i]
      end
      if n > 0 then
        k = k + 1
        ats[k], ns[k], sum = at, n, sum + n
      end
    end
  end
  w.at, w.n, w.gone, w.whole, w.fresh, w.oldest = ats, ns, gone, true, true, ats[1]
  w.left, w.size = w.l.rate - sum - w.given, #all / 2 - gone
end

local bucket = { keys = 3 }
KINDS[0], KINDS[4] = bucket, bucket

-- trusts tells whether value was counted for this rate, less than a length ago.
-- If so, only what has expired since is read.
local function trusts(w, value)
  local rate, oldest, counted = string.match(w.had_base, '^(%d+):(%d+):(%d+)$')
  oldest, counted = tonumber(oldest), tonumber(counted)
  if not value or value > w.l.rate or tonumber(rate) ~= w.l.rate then return false end
  call('ZCARD', w.log) -- an error now, if it is of another type, rather than while it is written
  if oldest > NOW or counted > NOW or counted <= NOW - w.l.length then return false end
  w.at, w.n, w.left, w.counted = {}, {}, value, counted
  if oldest > NOW - w.l.length then return true end
  local gone = call('ZRANGEBYSCORE', w.log, '-inf', w.l.old)
  w.left, w.gone = value + total(gone), #gone
  return w.left <= w.l.rate
end

-- open learns how many permits are left, with as little reading as is exact. When
-- it looks like a refusal, it reads the times at once.
function bucket.open(w, value, base)
  if not value then
    if not base and call('EXISTS', w.state, w.log) == 0 then
      w.at, w.n, w.whole, w.fresh, w.left, w.size = NONE, NONE, true, true, w.l.rate, 0
      return
    end
    if call('EXISTS', w.state) == 1 then error('value is no string') end
  end
  value, w.had_base = tonumber(value), base or nil
  if base and trusts(w, value) then return end
  if base or not value or value < 1 then return recount(w) end
  count(w, value)
end

-- more reads the next few entries, oldest first; false when there are none.
local function more(w)
  if w.whole then return false end
  local read = w.read or w.gone
  local size = math.max(8, read - w.gone)
  local part = call('ZRANGE', w.log, read, read + size - 1, 'WITHSCORES')
  w.read = read + #part / 2
  w.whole = #part < 2 * size
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

-- wait is how many ms it takes until `cost` permits are left; 0 is now.
function bucket.wait(w, cost)
  local short = cost - w.left
  if short <= 0 then return 0 end
  if not w.at then
    recount(w)
    return bucket.wait(w, cost)
  end
  local i = 1
  while true do
    while i > #w.at do
      if not more(w) then break end
      if w.fresh then return bucket.wait(w, cost) end
    end
    if i > #w.at then break end
    short = short - w.n[i]
    if short <= 0 then return w.at[i] + w.l.length - NOW end
    i = i + 1
  end
  -- What is still missing was taken just now, or value lies: count again.
  if short > w.given and not w.fresh then
    recount(w)
    return bucket.wait(w, cost)
  end
  return w.l.length
end

-- take takes cost permits, which member records. Of many that will be merged,
-- only the first few are kept one by one.
function bucket.take(w, cost, member)
  w.left, w.given = w.left - cost, w.given + cost
  local members = w.members
  if not members then
    w.members = { NOW_TEXT, member }
  elseif #members <= 2 * HOT or not w.l.merges then
    members[#members + 1] = NOW_TEXT
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
  local marks, out = 0, {}
  for i = 1, #all, 2 do
    if is_mark(all[i]) then marks = marks + 1 end
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
    if m == FLOOR then
      dropped = math.max(dropped or 0, tonumber(s))
    elseif n == 0 then
      if is_mark(m) and marks <= MARKS then
        out[#out + 1], out[#out + 2] = s, m
      elseif is_mark(m) then
        dropped, marks = math.max(dropped or 0, tonumber(s)), marks - 1
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
  if dropped then out[#out + 1], out[#out + 2] = int(dropped), FLOOR end
  call('DEL', w.log)
  add(w.log, out)
end

-- together makes one entry of what one call granted on a hot key, where each by
-- itself would soon be merged.
local function together(w)
  local first = sub(w.members[2], 2, 9)
  w.members = { NOW_TEXT, char(14) .. little(NOW, 6) .. first .. little(w.given, 4) }
  return w.members
end

-- write writes what was granted into the log, and reports whether there was any.
local function write(w)
  if w.future then add(w.log, w.future, 'XX') end
  if w.given == 0 then return false end
  local log, l, members = w.log, w.l, w.members
  if w.gone > 0 then call('ZREMRANGEBYSCORE', log, '-inf', l.old) end
  if l.merges and #members > 2 * HOT then members = together(w) end
  if l.merges and (w.size or call('ZCARD', log)) + #members / 2 > FULL then
    merge(w)
  elseif #members == 2 then
    call('ZADD', log, members[1], members[2])
  else
    add(log, members)
  end
  return true
end

-- keep writes everything. A key lives a little longer than the last permit needs
-- to come back, and all keys of a window die together.
function bucket.keep(w)
  local size, members = w.size, w.members
  -- What is to be trusted from now on must hold nothing that has expired.
  if size and members and not w.fresh and size + #members / 2 > SMALL then w.gone = 1 end
  if not write(w) then return end
  local ttl = w.l.ttl
  call('PEXPIRE', w.log, ttl)
  call('SET', w.state, count_text(w.left), 'PX', ttl)
  if not size then return end -- value was trusted, and is as long as it was
  if size + #w.members / 2 > SMALL then
    local oldest = w.oldest or call('ZRANGE', w.log, 0, 0, 'WITHSCORES')[2]
    call('SET', w.base, count_text(w.l.rate) .. ':' .. int(oldest) .. ':' .. NOW_TEXT, 'PX', ttl)
  elseif w.had_base then -- quickly read again
    call('DEL', w.base)
  end
end
