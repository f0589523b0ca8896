-- reset forgets what is counted, and bans. A floor remains, so that nothing taken
-- before is given back to what is taken from now on.
-- KEYS, ARGV  those of each window; ARGV as for ban, without the last
-- reply       1
local windows = list_windows()
for _, w in ipairs(windows) do
  if w.l.kind.reset then
    w.l.kind.reset(w)
  else
    call('DEL', w.state, w.log, w.base)
    call('ZADD', w.log, NOW_TEXT, FLOOR)
    call('PEXPIRE', w.log, w.l.ttl)
  end
  tell(w)
end
return 1
