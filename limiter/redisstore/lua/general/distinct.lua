-- A limit of distinct values, for all that is beside the usual path: see algorithm/distinct.lua. Of
-- a value there are the last USES uses, and for those before, which are not given back any more,
-- one member whose ID is all zeros.
local USES = 2
local BEFORE = string.rep(char(0), 8)
functions.valued = true

-- note takes one use into w: the uses of a value are kept oldest first.
local function note(w, value, id, at)
  local uses = w.values[value]
  if not uses then
    uses = {}
    w.values[value], w.standing = uses, w.standing + 1
  end
  uses[#uses + 1] = { id = id, at = at }
end

-- put and out keep what is to be written.
local function put(w, member, at) w.puts[member], w.outs[member] = at, nil end
local function out(w, member) w.outs[member], w.puts[member] = true, nil end

function functions.open(w)
  w.values, w.standing, w.puts, w.outs = {}, 0, {}, {}
  local all = call('ZRANGE', w.log, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local member, at = all[i], tonumber(all[i + 1])
    if #member == 16 and at > NOW - w.l.length then
      if at > NOW then -- the clock was set back: it was used now at the latest
        at, w.changed = NOW, true
        put(w, member, at)
      end
      note(w, sub(member, 1, 8), sub(member, 9), at)
    end
  end
  w.left = w.l.rate - w.standing
end

function functions.wait(w, cost, value)
  local short, ats = cost - w.left, {}
  if short <= 0 or w.values[value] then return 0 end
  for _, uses in pairs(w.values) do ats[#ats + 1] = uses[#uses].at end
  table.sort(ats)
  return ats[short] + w.l.length - NOW
end

function functions.take(w, _, entry, value)
  local id = sub(entry, 2, 9)
  note(w, value, id, NOW)
  w.left = w.l.rate - w.standing
  put(w, value .. id, NOW)
  w.changed = true
  local uses, own, before = w.values[value], 0, nil
  for i = #uses, 1, -1 do
    local use = uses[i]
    if use.id == BEFORE then
      before = before or use
    else
      own = own + 1
      if own > USES then
        out(w, value .. use.id)
        put(w, value .. BEFORE, math.max(use.at, before and before.at or 0))
        use.id = BEFORE
        before = use
      end
    end
  end
end

function functions.keep(w)
  if not w.changed then return end
  call('ZREMRANGEBYSCORE', w.log, '-inf', int(NOW - w.l.length))
  for member, at in pairs(w.puts) do call('ZADD', w.log, int(at), member) end
  for member in pairs(w.outs) do call('ZREM', w.log, member) end
  call('PEXPIRE', w.log, w.l.ttl)
end

--@ change
-- refund forgets the use of id, wherever it is.
function functions.refund(w, id)
  local all = call('ZRANGEBYSCORE', w.log, '(' .. int(NOW - w.l.length), '+inf')
  for i = 1, #all do
    if #all[i] == 16 and sub(all[i], 9) == id then return call('ZREM', w.log, all[i]) end
  end
  return 0
end

-- grant forgets the n values that were used last.
function functions.grant(w, n)
  functions.open(w)
  local values = {}
  for value, uses in pairs(w.values) do values[#values + 1] = { value = value, uses = uses, at = uses[#uses].at } end
  table.sort(values, function(a, b) return a.at > b.at or a.at == b.at and a.value > b.value end)
  for i = 1, math.min(n, #values) do
    for _, use in ipairs(values[i].uses) do call('ZREM', w.log, values[i].value .. use.id) end
  end
end

-- report counts values that were used elsewhere.
function functions.report(w, grants)
  functions.open(w)
  for _, g in ipairs(grants) do put(w, g.value .. g.id, g.at) end
  w.changed = true
  functions.keep(w)
end
