-- grant gives keys permits on top, as if their latest had not been taken.
-- KEYS   state, log, base of each window
-- ARGV   number of windows; algorithm, rate, length (ms), most of each; then the
--        permits for each window
-- reply  1
local windows, first = list_windows(clock())
for i, w in ipairs(windows) do
  w.kind.grant(w, tonumber(ARGV[first - 1 + i]))
  tell(w)
end
return 1
