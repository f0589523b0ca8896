-- A token bucket, and a limit of concurrent permits, is three keys:
--   value    string  permits left: rate - sum of the permits in `permits`
--   permits  zset    what was taken: score = time in ms, member = id and count
--   base     string  "rate:oldest:counted": value was counted for this rate, at
--                    the time `counted`, and nothing comes back before
--                    oldest + length. Only where reading all of `permits` each
--                    time would cost more; never needed for a right answer.
--                    Or "ban:until".
-- A member is one byte L, L bytes of id, and the count as 4 bytes, lowest first.
-- L = 8 is one decision (count 0: it was given back), L = 6 is several that were
-- merged (id = their score), 'floor' says that nothing merged until its score is
-- given back early any more. Others' members have any L.
--
-- Functions that read are called before any that writes: reading decides,
-- `keep` writes everything at the end.

local call, byte, char, floor = redis.call, string.byte, string.char, math.floor
local SMALL, FULL, SLOTS, MARKS, SLACK = 16, 128, 64, 32, 1000
local FLOOR = char(5) .. 'floor' .. char(0, 0, 0, 0)
local CONCURRENT = 4

local function int(n) return string.format('%.0f', n) end

-- little writes n as so many bytes, lowest first.
local function little(n, width)
  local out = {}
  for i = 1, width do
    out[i] = char(n % 256)
    n = floor(n / 256)
  end
  return table.concat(out)
end

local function single(id, n) return char(#id) .. id .. little(n, 4) end
local function merged(at, n) return char(6) .. little(at, 6) .. little(n, 4) end
local function is_merged(member) return #member == 11 and byte(member, 1) == 6 end

-- permits_of reads a member's count. A foreign one with the highest bit set was
-- a negative number, and counts as nothing.
local function permits_of(member)
  local a, b, c, d = byte(member, -4, -1)
  if not d or d > 127 then return 0 end
  return a + b * 256 + c * 65536 + d * 16777216
end

local function is_mark(member)
  return member ~= FLOOR and byte(member, 1) == 8 and permits_of(member) == 0
end

-- recount reads everything and trusts nothing but the members.
local function recount(w)
  local all = call('ZRANGE', w.log, 0, -1, 'WITHSCORES')
  local sum = 0
  w.at, w.n, w.gone, w.future = {}, {}, 0, {}
  w.whole, w.fresh, w.counted = true, true, w.now
  for i = 1, #all, 2 do
    local at, n = tonumber(all[i + 1]), permits_of(all[i])
    if at <= w.now - w.length then
      w.gone = w.gone + 1
    else
      if at > w.now then -- the clock was set back: it was taken now at the latest
        at = w.now
        w.future[#w.future + 1] = int(at)
        w.future[#w.future + 1] = all[i]
      end
      if n > 0 then
        w.at[#w.at + 1], w.n[#w.n + 1] = at, n
        sum = sum + n
      end
    end
  end
  w.oldest = w.at[1]
  w.left = w.rate - sum - w.given
end

local bucket = {}

-- open learns how many permits are left, with as little reading as is exact.
function bucket.open(w, value, base)
  w.given, w.members, w.at, w.n, w.gone, w.read = 0, {}, {}, {}, 0, 0
  w.merges = w.rate > FULL and w.algorithm ~= CONCURRENT
  w.had_base = base
  local left = value and tonumber(value)
  local rate, oldest, counted
  if base then rate, oldest, counted = string.match(base, '^(%d+):(%d+):(%d+)$') end
  rate, oldest, counted = tonumber(rate), tonumber(oldest), tonumber(counted)
  if w.rate <= SMALL or not left or left > w.rate or rate ~= w.rate or oldest > w.now
    or counted > w.now or counted <= w.now - w.length then
    return recount(w)
  end
  w.left, w.counted, w.oldest = left, counted, oldest
  if oldest > w.now - w.length then return end
  local gone = call('ZRANGEBYSCORE', w.log, '-inf', int(w.now - w.length))
  for i = 1, #gone do w.left = w.left + permits_of(gone[i]) end
  w.gone, w.read, w.oldest = #gone, #gone, nil
end

-- more reads the next few entries, oldest first; false when there are none.
local function more(w)
  if w.whole then return false end
  local size = math.max(8, w.read - w.gone)
  local part = call('ZRANGE', w.log, w.read, w.read + size - 1, 'WITHSCORES')
  w.read = w.read + #part / 2
  w.whole = #part < 2 * size
  for i = 1, #part, 2 do
    local at, n = tonumber(part[i + 1]), permits_of(part[i])
    if at > w.now then
      recount(w)
      return true
    end
    if n > 0 then w.at[#w.at + 1], w.n[#w.n + 1] = at, n end
  end
  return #part > 0
end

-- left is how many permits are left, negative when a lowered rate is overdrawn.
function bucket.left(w) return w.left end

-- wait is how many ms it takes until `cost` permits are left; 0 is now.
function bucket.wait(w, cost)
  local short = cost - w.left
  if short <= 0 then return 0 end
  local i = 1
  while true do
    while i > #w.at do
      if not more(w) then break end
      if w.fresh then return bucket.wait(w, cost) end
    end
    if i > #w.at then break end
    short = short - w.n[i]
    if short <= 0 then return w.at[i] + w.length - w.now end
    i = i + 1
  end
  -- What is still missing was taken just now, or value lies: count again.
  if short > w.given and not w.fresh then
    recount(w)
    return bucket.wait(w, cost)
  end
  return w.length
end

function bucket.take(w, id, cost)
  w.left = w.left - cost
  w.given = w.given + cost
  w.members[#w.members + 1] = int(w.now)
  w.members[#w.members + 1] = single(id, cost)
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
-- length. It keeps the latest time, so that nothing comes back early.
local function merge(w)
  local all = call('ZRANGE', w.log, 0, -1, 'WITHSCORES')
  local width = math.ceil(w.length / SLOTS)
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
      member = is_merged(m) and merged(tonumber(s), n) or m
    end
  end
  flush()
  if dropped then out[#out + 1], out[#out + 2] = int(dropped), FLOOR end
  call('DEL', w.log)
  add(w.log, out)
end

-- write writes what was granted into the log, and reports whether there was any.
local function write(w)
  if w.future and #w.future > 0 then add(w.log, w.future, 'XX') end
  if w.given == 0 then return false end
  if w.gone > 0 then call('ZREMRANGEBYSCORE', w.log, '-inf', int(w.now - w.length)) end
  add(w.log, w.members)
  if w.merges and call('ZCARD', w.log) > FULL then merge(w) end
  return true
end

-- keep writes everything. A key lives a little longer than the last permit needs
-- to come back, and all keys of a window die together.
function bucket.keep(w)
  if not write(w) then return end
  local ttl = int(w.length + SLACK)
  call('PEXPIRE', w.log, ttl)
  call('SET', w.state, int(w.left), 'PX', ttl)
  if w.rate <= SMALL then
    if w.had_base then call('DEL', w.base) end
    return
  end
  if not w.oldest and w.whole then w.oldest = w.at[1] or w.now end
  if not w.oldest then
    w.oldest = tonumber(call('ZRANGE', w.log, 0, 0, 'WITHSCORES')[2])
  end
  local base = int(w.rate) .. ':' .. int(w.oldest) .. ':' .. int(w.counted)
  if base ~= w.had_base then call('SET', w.base, base, 'PX', ttl) end
end
