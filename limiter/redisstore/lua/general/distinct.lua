-- A limit of distinct values, for all that is beside the fast path: see algorithm/distinct.lua.
functions.valued = true

-- uses_of lists the uses in a text, none of them later than now.
local function uses_of(text)
  local list = {}
  for i = 1, #text - 13, 14 do
    list[#list + 1] = { id = sub(text, i, i + 7), at = math.min(NOW, number(text, i + 8, 6)) }
  end
  return list
end

-- put_uses writes the uses of a value, which is forgotten if none of them counts. It returns when the last one was.
local function put_uses(w, value, list)
  local text, last = '', 0
  table.sort(list, function(a, b) return a.at < b.at end)
  for _, use in ipairs(list) do text, last = few(text .. use.id .. little(use.at, 6)), use.at end
  if last <= NOW - w.l.length then return forget(w.state, w.log, { value }) end
  call('HSET', w.state, value, text)
  call('ZADD', w.log, int(last), value)
end

local function live_on(w)
  call('PEXPIRE', w.state, w.l.ttl)
  call('PEXPIRE', w.log, w.l.ttl)
end

-- convert makes values of the uses that earlier versions have written into the sorted set, in members of 16 bytes, and
-- removes what is neither, afterwards: see set.lua.
local function convert(w)
  local all, values = call('ZRANGE', w.log, 0, -1, 'WITHSCORES'), {}
  for i = 1, #all, 2 do
    local member, at = all[i], math.max(0, math.min(NOW, tonumber(all[i + 1])))
    if #member == 8 or #member == 16 then
      local value = sub(member, 1, 8)
      local uses = values[value] or uses_of(call('HGET', w.state, value) or '')
      values[value] = uses
      if #member == 16 or #uses == 0 then uses[#uses + 1] = { id = #member == 16 and sub(member, 9) or BEFORE, at = at } end
    end
  end
  for value, uses in pairs(values) do put_uses(w, value, uses) end
  live_on(w)
  for i = 1, #all, 2 do
    if not values[all[i]] then call('ZREM', w.log, all[i]) end
  end
  for _, field in ipairs(call('HKEYS', w.state)) do
    if not values[field] then call('HDEL', w.state, field) end
  end
end

-- ensure_uses lets there be uses of each value.
local function ensure_uses(w)
  if call('ZCARD', w.log) ~= call('HLEN', w.state) then convert(w) end
end

local function last_use(w, value)
  local last = tonumber(call('ZSCORE', w.log, value) or 0)
  return last > NOW - w.l.length and last
end

function functions.open(w)
  ensure_uses(w)
  w.left = w.l.rate - call('ZCOUNT', w.log, '(' .. w.l.old, '+inf')
  w.moved = call('ZCOUNT', w.log, '(' .. now_text, '+inf') > 0
end

function functions.wait(w, cost, value)
  local short = cost - w.left
  if short <= 0 or value and last_use(w, value) then return 0 end
  local found = call('ZRANGEBYSCORE', w.log, '(' .. w.l.old, '+inf', 'WITHSCORES', 'LIMIT', short - 1, 1)
  return math.min(NOW, tonumber(found[2])) + w.l.length - NOW
end

-- keep writes that what was used later than now was used now: the clock was set back.
function functions.keep(w)
  if not w.moved then return end
  for _, value in ipairs(call('ZRANGEBYSCORE', w.log, '(' .. now_text, '+inf')) do
    put_uses(w, value, uses_of(call('HGET', w.state, value) or ''))
  end
  w.moved = false
end

function functions.take(w, _, entry, value)
  functions.keep(w)
  if not last_use(w, value) then w.left = w.left - 1 end
  add_use(w.state, w.log, value, sub(entry, 2, 9), true, w.l.old, w.l.ttl)
end

-- refund forgets the use of id, wherever it is.
function functions.refund(w, id)
  ensure_uses(w)
  local all = call('HGETALL', w.state)
  for i = 2, #all, 2 do
    local at = string.find(all[i], id, 1, true)
    if at and at % 14 == 1 and number(all[i], at + 8, 6) > NOW - w.l.length then
      put_uses(w, all[i - 1], uses_of(sub(all[i], 1, at - 1) .. sub(all[i], at + 14)))
      return 1
    end
  end
  return 0
end

-- grant forgets the n values that were used last.
function functions.grant(w, n)
  ensure_uses(w)
  forget(w.state, w.log, call('ZREVRANGE', w.log, 0, n - 1))
end

function functions.reset(w) call('DEL', w.state, w.log, w.cached_sum) end

-- report counts values that were used elsewhere.
function functions.report(w, grants)
  ensure_uses(w)
  for _, g in ipairs(grants) do
    local uses = uses_of(call('HGET', w.state, g.value) or '')
    uses[#uses + 1] = { id = g.id, at = g.at }
    put_uses(w, g.value, uses)
  end
  live_on(w)
end
