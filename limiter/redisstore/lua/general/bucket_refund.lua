-- How a token bucket gives back: to who took, to the holder of a lease, or to an operator's key;
-- and what others granted.

-- credit adds to a value that exists; one that is gone is counted anew anyway.
-- INCRBY keeps the time to live, and value + sum of the members stays the rate.
local function credit(w, n)
  if call('EXISTS', w.state) == 1 then call('INCRBY', w.state, int(n)) end
end

-- An id that is still by itself is exactly what was taken. Where entries are
-- merged each refund leaves a tombstone; elsewhere one refund horizon for all will do. The new
-- member comes first: an empty set would lose its time to live.
local function add_tombstone(w, id, at)
  if w.l.rate > FULL then
    call('ZADD', w.log, at, single(id, 0))
  else
    call('ZADD', w.log, 'GT', at, REFUND_HORIZON)
  end
end

local function refund_single(w, id, cost, at)
  add_tombstone(w, id, at)
  call('ZREM', w.log, single(id, cost))
  credit(w, cost)
  return cost
end

-- What took more keeps the rest under another id, by which nobody gives it back. The parts of a
-- decision on a cluster were taken within NEAR ms.
local NEAR = 100
local function refund_part(w, id, cost, at)
  local near = call('ZRANGEBYSCORE', w.log, int(at - NEAR), int(at + NEAR), 'WITHSCORES')
  for i = 1, #near, 2 do
    local member, score = near[i], near[i + 1]
    local had = permits_of(member)
    if sub(member, 2, -5) == id and had > cost and tonumber(score) > NOW - w.l.length then
      add_tombstone(w, id, score)
      call('ZADD', w.log, score, single(char(255 - byte(id)) .. sub(id, 2), had - cost))
      call('ZREM', w.log, member)
      credit(w, cost)
      return cost
    end
  end
end

-- What was merged lies in the first merged entry that is not older. Tombstones and the
-- refund horizon tell whether it was given back before.
local function refund_merged(w, id, cost, at)
  local limit = call('ZSCORE', w.log, REFUND_HORIZON)
  if at <= NOW - w.l.length or limit and at <= tonumber(limit) then return 0 end
  local after = call('ZRANGEBYSCORE', w.log, int(at), '+inf', 'WITHSCORES')
  for i = 1, #after, 2 do
    if is_merged(after[i]) then
      local had, score = permits_of(after[i]), after[i + 1]
      local n = math.min(cost, had)
      call('ZADD', w.log, int(at), single(id, 0))
      if had > n then call('ZADD', w.log, score, sub(after[i], 1, -5) .. little(had - n, 4)) end
      call('ZREM', w.log, after[i])
      credit(w, n)
      return n
    end
  end
  return 0
end

-- refund gives back cost permits of id, taken at the time at, and returns how many.
function functions.refund(w, id, cost, at)
  local member = single(id, cost)
  local score = call('ZSCORE', w.log, member)
  if w.l.algorithm == CONCURRENT then
    if not score then return 0 end
    call('ZREM', w.log, member)
    credit(w, cost)
    return cost
  end
  if score then return tonumber(score) > NOW - w.l.length and refund_single(w, id, cost, score) or 0 end
  if call('ZSCORE', w.log, single(id, 0)) then return 0 end
  return refund_part(w, id, cost, at) or refund_merged(w, id, cost, at)
end

-- renew makes what id took as young as now; 0 if it has come back.
function functions.renew(w, id, cost)
  local score = call('ZSCORE', w.log, single(id, cost))
  if not score or tonumber(score) <= NOW - w.l.length then return 0 end
  call('ZADD', w.log, int(NOW), single(id, cost))
  for _, key in ipairs({ w.state, w.log, w.cached_sum }) do call('PEXPIRE', key, w.l.ttl) end
  return 1
end

-- grant takes n permits out of the youngest entries. What is left of one is no
-- longer given back by its id.
function functions.grant(w, n)
  local all, found, from = {}, 0, 0
  repeat
    local part = call('ZREVRANGE', w.log, from, from + PART - 1, 'WITHSCORES')
    for i = 1, #part, 2 do all[#all + 1], all[#all + 2], found = part[i], part[i + 1], found + permits_of(part[i]) end
    from = from + PART
  until #part == 0 or found >= n
  for i = 1, #all, 2 do
    local member, score = all[i], all[i + 1]
    local had = permits_of(member)
    local some = math.min(n, had)
    if some > 0 then
      local id = sub(member, 2, -5)
      if #id == 8 then call('ZADD', w.log, score, single(id, 0)) end
      if had > some then call('ZADD', w.log, score, single(id, had - some)) end
      call('ZREM', w.log, member)
      credit(w, some)
      n = n - some
    end
    if n == 0 then return end
  end
end

-- report takes what was granted off value, if that is to be trusted, and says how old it is; or it counts value
-- anew from the entries. Then what says for when value was counted is deleted, unless it is a ban.
function functions.report(w, grants)
  w.had_cached_sum = call('GET', w.cached_sum) or ''
  local trusted = trusts(w, tonumber(call('GET', w.state) or nil))
  local oldest, counted = string.match(w.had_cached_sum, ':(%d+):(%d+)$')
  for _, g in ipairs(grants) do
    if call('ZADD', w.log, 'NX', int(g.at), single(g.id, g.n)) == 1 then
      w.left, oldest = w.left - g.n, math.min(g.at, tonumber(oldest or g.at))
    end
  end
  if not trusted then recount(w) end
  call('SET', w.state, int(w.left), 'PX', w.l.ttl)
  call('PEXPIRE', w.log, w.l.ttl)
  if trusted then
    call('ZREMRANGEBYSCORE', w.log, '-inf', w.l.old)
    call('SET', w.cached_sum, int(w.l.rate) .. ':' .. int(oldest) .. ':' .. counted, 'PX', w.l.ttl)
  elseif sub(w.had_cached_sum, 1, 4) ~= 'ban:' then
    call('DEL', w.cached_sum)
  end
end
