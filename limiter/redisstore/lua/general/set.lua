-- What windows of three keys have, of which the second is a sorted set: see doc.go.
local FULL, REFUND_HORIZON = 128, char(5) .. 'floor' .. char(0, 0, 0, 0)
local now_text = int(NOW)
local functions = { keys = 3 }

-- reset leaves a refund horizon: nothing that was taken before is given back any more.
function functions.reset(w)
  call('DEL', w.state, w.log, w.cached_sum)
  call('ZADD', w.log, now_text, REFUND_HORIZON)
  call('PEXPIRE', w.log, w.l.ttl)
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
