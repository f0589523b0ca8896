-- What windows of three keys have, of which the second is a sorted set: see doc.go.
local FULL, FLOOR = 128, char(5) .. 'floor' .. char(0, 0, 0, 0)
local now_text = int(NOW)
local functions = { keys = 3 }

--@ change
-- reset leaves a floor: nothing that was taken before is given back any more.
function functions.reset(w)
  call('DEL', w.state, w.log, w.base)
  call('ZADD', w.log, now_text, FLOOR)
  call('PEXPIRE', w.log, w.l.ttl)
end

function functions.ban(w, till)
  if till == 0 then
    call('DEL', w.base)
  else
    call('SET', w.base, 'ban:' .. int(till), 'PX', int(till - NOW + SLACK))
  end
end
