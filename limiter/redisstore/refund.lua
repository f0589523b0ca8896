-- refund gives back what one decision took, once.
-- KEYS   value, permits, base of each window
-- ARGV   number of windows; rate and length (ms) of each; then the decision's id,
--        its time (ms), and its cost in each window
-- reply  how many permits were given back in all

-- credit adds to a value that exists; one that is gone is counted anew anyway.
-- INCRBY keeps the time to live, and value + sum of the members stays the rate.
local function credit(w, n)
  if call('EXISTS', w.value) == 1 then call('INCRBY', w.value, int(n)) end
end

-- An id that is still by itself is exactly what was taken. Where entries are
-- merged each refund leaves a mark; elsewhere one floor for all will do. The new
-- member comes first: an empty set would lose its time to live.
local function refund_single(w, id, cost, at)
  if w.rate > FULL then
    call('ZADD', w.permits, at, single(id, 0))
  else
    call('ZADD', w.permits, 'GT', at, FLOOR)
  end
  call('ZREM', w.permits, single(id, cost))
  credit(w, cost)
  return cost
end

-- What was merged lies in the first merged entry that is not older. Marks and the
-- floor tell whether it was given back before.
local function refund_merged(w, id, cost, at)
  local limit = call('ZSCORE', w.permits, FLOOR)
  if at <= w.now - w.length or limit and at <= tonumber(limit) then return 0 end
  local after = call('ZRANGEBYSCORE', w.permits, int(at), '+inf', 'WITHSCORES')
  for i = 1, #after, 2 do
    if is_merged(after[i]) then
      local had, score = permits_of(after[i]), after[i + 1]
      local n = math.min(cost, had)
      call('ZADD', w.permits, int(at), single(id, 0))
      if had > n then call('ZADD', w.permits, score, merged(tonumber(score), had - n)) end
      call('ZREM', w.permits, after[i])
      credit(w, n)
      return n
    end
  end
  return 0
end

local now, given = clock(), 0
local windows = tonumber(ARGV[1])
local rest = 2 + 2 * windows
local id, at = ARGV[rest], tonumber(ARGV[rest + 1])
for i = 1, windows do
  local w = {
    now = now, value = KEYS[3 * i - 2], permits = KEYS[3 * i - 1],
    rate = tonumber(ARGV[2 * i]), length = tonumber(ARGV[2 * i + 1]),
  }
  local cost = tonumber(ARGV[rest + 1 + i])
  local score = call('ZSCORE', w.permits, single(id, cost))
  if score then
    given = given + refund_single(w, id, cost, score)
  elseif not call('ZSCORE', w.permits, single(id, 0)) then
    given = given + refund_merged(w, id, cost, at)
  end
end
return given
