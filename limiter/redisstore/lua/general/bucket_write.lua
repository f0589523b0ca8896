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
    local n = tonumber(s) > NOW - w.l.length and permits_of(m) or 0
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
  replace(w.log, out)
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
  if w.future then add(log, w.future) end
  if w.given == 0 then return end
  -- What is to be trusted from now on must hold nothing that has expired. That may be all, if nothing counts.
  local spared = w.left + w.given >= l.rate and 1 or 0
  if w.gone > spared then call('ZREMRANGEBYRANK', log, 0, w.gone - spared - 1) end
  if l.merges and #members > 2 * HOT then members = together(w) end
  if l.merges and (size or call('ZCARD', log)) + #members / 2 > FULL then
    merge(w)
  else
    add(log, members)
  end
  if w.gone > 0 and spared == 1 then call('ZREMRANGEBYSCORE', log, '-inf', l.old) end
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
