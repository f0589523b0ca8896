-- What windows of three keys have, of which the second is a sorted set: see doc.go.
local REFUND_HORIZON = char(5) .. 'floor' .. char(0, 0, 0, 0)
local now_text, ask, count_of = int(NOW), call, permits_of
local functions = { keys = 3 }

-- add is ZADD of alternating scores and members, in parts that fit a call.
local function add(log, scored)
  for i = 1, #scored, 1000 do call('ZADD', log, unpack(scored, i, math.min(i + 999, #scored))) end
end

-- reset leaves a refund horizon: nothing that was taken before is given back any more. While its slot moves, a key
-- that a script has emptied is of another master, and cannot be written any more: so it always holds something. More
-- than it will needs more memory from then on.
function functions.reset(w)
  if not pcall(call, 'ZCARD', w.log) then call('DEL', w.log) end -- it is of another type
  call('ZREMRANGEBYRANK', w.log, 0, -2)
  call('ZADD', w.log, '-inf', REFUND_HORIZON)
  call('ZREMRANGEBYRANK', w.log, 1, -1)
  call('ZADD', w.log, now_text, REFUND_HORIZON)
  call('PEXPIRE', w.log, w.l.ttl)
  call('DEL', w.state, w.cached_sum)
end

-- Nothing counts subjects, and what is taken is what is not left.
function functions.confirm() return false end
function functions.current() end

function functions.ban(w, till)
  if till == 0 then
    call('DEL', w.cached_sum)
  else
    call('SET', w.cached_sum, 'ban:' .. int(till), 'PX', int(till - NOW + SLACK))
  end
end
