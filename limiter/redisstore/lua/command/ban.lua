-- ban lets keys have nothing for some time, or ends that.
-- KEYS   those of each window
-- ARGV   limits and windows, see list_windows; then for
--        how long, in ms; 0 ends a ban
-- reply  1
local windows, first = list_windows()
for _, w in ipairs(windows) do
  if w.l.kind.ban then
    w.l.kind.ban(w, ARGV[first] == '0' and 0 or NOW + ARGV[first])
  elseif ARGV[first] == '0' then
    call('DEL', w.base)
  else
    call('SET', w.base, 'ban:' .. int(NOW + ARGV[first]), 'PX', int(ARGV[first] + SLACK))
  end
  tell(w)
end
return 1
