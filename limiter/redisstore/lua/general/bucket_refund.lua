-- How a token bucket gives back: to who took, to the holder of a lease, or to an operator's key;
-- and what others granted.

-- credit adds to a value that exists; one that is gone is counted anew anyway.
-- INCRBY keeps the time to live, and value + sum of the members stays the rate.
local function credit(w, n)
  if n > 0 and call('EXISTS', w.state) == 1 then call('INCRBY', w.state, int(n)) end
end

-- refund gives back cost permits of id, taken at the time at, and returns how many. An id that is still by itself is
-- exactly what was taken. The new member comes first: an empty set would lose its time to live. What took more keeps the
-- rest; the parts of a decision on a cluster were taken within NEAR ms.
local NEAR = 100
function functions.refund(w, id, cost, at)
  local member = single(id, cost)
  local score = call('ZSCORE', w.log, member)
  if score and (w.l.algorithm == CONCURRENT or tonumber(score) > NOW - w.l.length) then
    if w.l.merges then
      call('ZADD', w.log, score, single(id, 0))
    elseif w.l.algorithm ~= CONCURRENT then
      call('ZADD', w.log, 'GT', score, REFUND_HORIZON)
    end
    call('ZREM', w.log, member)
    credit(w, cost)
    return cost
  end
  if score or w.l.algorithm == CONCURRENT or call('ZSCORE', w.log, single(id, 0)) then return 0 end
  local all, n = list_entries(w, call('ZRANGEBYSCORE', w.log, int(at - NEAR), '+inf', 'WITHSCORES')), nil
  for _, e in ipairs(all) do
    if not n and e.id == id and e.n > cost and e.at <= at + NEAR then
      e.n, n = e.n - cost, cost
      forget_id(w, all, e)
    end
  end
  n = n or refund_merged(w, all, id, cost, at)
  put_entries(w, all)
  credit(w, n)
  return n
end

-- renew makes what id took as young as now; 0 if it has come back.
function functions.renew(w, id, cost)
  local score = call('ZSCORE', w.log, single(id, cost))
  if not score or tonumber(score) <= NOW - w.l.length then return 0 end
  call('ZADD', w.log, int(NOW), single(id, cost))
  for _, key in ipairs({ w.state, w.log, w.cached_sum }) do call('PEXPIRE', key, w.l.ttl) end
  return 1
end

function functions.grant(w, n)
  local youngest = call('ZRANGE', w.log, int(-n - 2 * FULL), -1, 'WITHSCORES') -- not all: there may be very many
  local all = list_entries(w, youngest)
  n = grant_entries(all, n)
  put_entries(w, all)
  credit(w, n)
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
