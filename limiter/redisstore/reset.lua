-- reset forgets what is counted, and bans. A floor remains, so that nothing taken
-- before is given back to what is taken from now on.
-- KEYS, ARGV  state, log, base of each window; ARGV as for ban, without the last
-- reply       1
local now = clock()
local windows = list_windows(now)
for _, w in ipairs(windows) do
  if w.kind == redisson then
    call('DEL', w.state, w.log)
  else
    call('DEL', w.state, w.log, w.base)
    call('ZADD', w.log, int(now), FLOOR)
    call('PEXPIRE', w.log, int(2 * w.length + SLACK))
  end
  tell(w)
end
return 1
