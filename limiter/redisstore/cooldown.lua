-- A cooldown: a log of the permits since it began anew. One is three keys:
--   value    string  never written; its name stands for the window
--   permits  zset    the permits: score = time in ms, member as a bucket's. The
--                    first PAUSES of them lie in one member.
--   base     string  "ban:until", mostly absent
-- All come back together, one length after the last. limiter's cooldown.go is the
-- same.

local PAUSES = 32

local cooldown = { keys = 3 }

function cooldown.open(w)
  w.level, w.last, w.stale = 0, 0, false
  local all = call('ZRANGE', w.log, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local at, n = math.min(tonumber(all[i + 1]), NOW), permits_of(all[i])
    if n > 0 then w.level, w.last = w.level + n, at end
  end
  if w.level > 0 and w.last <= NOW - w.l.length then w.level, w.stale = 0, true end
  w.left = cooldown.wait(w) == 0 and 1 or 0
end

-- step is the pause after so many permits; the steps stand in place of the most of
-- a claim, with commas between.
local function step(w)
  local steps = {}
  for s in string.gmatch(w.l.says, '%d+') do steps[#steps + 1] = tonumber(s) end
  return steps[math.min(w.level, #steps)]
end

function cooldown.wait(w)
  if w.level == 0 then return 0 end
  return math.max(0, w.last + step(w) - NOW)
end

function cooldown.take(w, _, entry)
  w.level, w.last, w.entry = w.level + 1, NOW, entry
  w.left = cooldown.wait(w) == 0 and 1 or 0
end

function cooldown.keep(w)
  if not w.entry then return end
  if w.stale then call('DEL', w.log) end
  for _, late in ipairs(call('ZRANGEBYSCORE', w.log, '(' .. NOW_TEXT, '+inf')) do call('ZADD', w.log, NOW_TEXT, late) end
  while call('ZCARD', w.log) >= PAUSES do
    local two = call('ZRANGE', w.log, 0, 1, 'WITHSCORES')
    call('ZREM', w.log, two[1], two[3])
    call('ZADD', w.log, two[4], merged(tonumber(two[4]), permits_of(two[1]) + permits_of(two[3])))
  end
  call('ZADD', w.log, NOW_TEXT, w.entry)
  call('PEXPIRE', w.log, w.l.ttl)
end

function cooldown.refund(w, id) return call('ZREM', w.log, single(id, 1)) end

function cooldown.grant(w, n) return bucket.grant(w, n) end

KINDS[6] = cooldown
