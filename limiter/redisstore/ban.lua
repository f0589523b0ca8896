-- ban lets keys have nothing for some time, or ends that.
-- KEYS   state, log, base of each window
-- ARGV   number of windows; algorithm, rate, length (ms), most of each; then for
--        how long, in ms; 0 ends a ban
-- reply  1
local now = clock()
local windows, first = list_windows(now)
for _, w in ipairs(windows) do
  if ARGV[first] == '0' then
    call('DEL', w.base)
  else
    call('SET', w.base, 'ban:' .. int(now + ARGV[first]), 'PX', int(ARGV[first] + SLACK))
  end
  tell(w)
end
return 1
