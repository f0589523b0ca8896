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

-- keep writes everything. A key lives a little longer than the last permit needs to come back,
-- and all keys of a window die together.
function functions.keep(w)
  local log, l, ttl, size, members = w.log, w.l, w.l.ttl, w.size, w.members
  if w.future then add(log, w.future) end
  if w.given == 0 then return end
  -- What is to be trusted from now on must hold nothing that has expired. That may be all, if nothing counts.
  local spared = w.left + w.given >= l.rate and 1 or 0
  if w.gone > spared then call('ZREMRANGEBYRANK', log, 0, w.gone - spared - 1) end
  if l.merges and #members > 2 * HOT then -- each by itself would soon be merged
    members = { now_text, member_of({ at = NOW, n = w.given, id = false, member = members[2] }) }
  end
  if l.merges and (size or call('ZCARD', log)) + #members / 2 > FULL then
    local all = list_entries(w, call('ZRANGE', log, 0, -1, 'WITHSCORES'))
    for i = 2, #members, 2 do all[#all + 1] = entry_of(NOW, members[i]) end
    put_entries(w, merge_entries(w, all, l.length))
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
