-- A token bucket, or a limit of concurrent permits, for all that is beside the fast path: what
-- is left, and how long to wait; see token_bucket.lua. A member is one byte L, an ID of L bytes, and
-- the count as 4 bytes, lowest first. L = 8 is one decision (count 0: it was given back), L = 6
-- several that were merged (the ID is their score), L = 14 several of one script call (the score and
-- the ID of the first). REFUND_HORIZON says that nothing merged until its score is given back any more.
-- Members of others have any L. Functions that read are called before any that writes.
local SMALL, HOT, PART, MOST_COUNTED = 12, 4, 64, 1000

local function single(id, n) return char(#id) .. id .. little(n, 4) end
local function is_merged(member)
  local size = byte(member, 1)
  return (size == 6 or size == 14) and #member == size + 5
end

local function entry_of(at, member)
  return { at = at, n = permits_of(member), id = not is_merged(member) and sub(member, 2, -5), member = member }
end

-- list_entries makes a table of each entry that counts in what was read: see entries.lua.
local function list_entries(w, scored)
  local all = {}
  w.listed, w.refund_horizon = {}, 0
  for i = 1, #scored, 2 do
    local member, at = scored[i], tonumber(scored[i + 1])
    if member == REFUND_HORIZON then
      w.refund_horizon = at
    elseif at > NOW - w.l.length then
      w.listed[member] = true
      all[#all + 1] = entry_of(at, member)
    end
  end
  return all
end

-- member_of is the member for e. One of 8 bytes that has lost its ID counts as merged.
local function member_of(e)
  local was = e.member
  if not was then return e.id and single(e.id, e.n) or char(6) .. little(e.at, 6) .. little(e.n, 4) end
  if e.id or #was ~= 13 then return sub(was, 1, -5) .. little(e.n, 4) end
  return char(14) .. little(e.at, 6) .. sub(was, 2, 9) .. little(e.n, 4)
end

-- put_entries makes them the entries that count. One that is gone is removed last: see reset.
local function put_entries(w, all)
  local new, gone = {}, {}
  for _, e in ipairs(all) do
    local member = member_of(e)
    if not w.listed[member] then new[#new + 1], new[#new + 2] = int(e.at), member end
    w.listed[member] = nil
  end
  for member in pairs(w.listed) do gone[#gone + 1] = member end
  if w.refund_horizon > 0 then new[#new + 1], new[#new + 2] = int(w.refund_horizon), REFUND_HORIZON end
  local last = table.remove(gone)
  for i = 1, #gone, 1000 do call('ZREM', w.log, unpack(gone, i, math.min(i + 999, #gone))) end
  add(w.log, new)
  if last then call('ZREM', w.log, last) end
end

-- total is the sum of members' counts.
local function total(members)
  local sum = 0
  for i = 1, #members do sum = sum + permits_of(members[i]) end
  return sum
end

-- has_future tells whether something was taken before the clock was set back.
local function has_future(w) return call('ZCOUNT', w.log, '(' .. now_text, '+inf') > 0 end

-- count learns what is left from the entries alone, for to read their times costs as much
-- again.
local function count(w)
  local live = call('ZRANGEBYSCORE', w.log, '(' .. w.l.old, '+inf')
  local size = #live
  w.left, w.size, w.gone = w.l.rate - total(live), size, call('ZCARD', w.log) - size
end

-- recount reads everything and trusts nothing but the members.
local function recount(w)
  local sum
  sum, w.size = read_all(w, w.l.length)
  w.left, w.oldest, w.recounted = w.l.rate - sum - w.given, w.at[1], true
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
  if not value and call('EXISTS', w.state) == 1 then error('value is no string') end
  value, w.had_cached_sum = tonumber(value), cached_sum or nil
  if cached_sum and trusts(w, value) then return end
  if cached_sum or not value or value < 1 or has_future(w) then return recount(w) end
  count(w)
end
