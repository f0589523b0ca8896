-- take decides requests one after another, each wholly or not at all.
-- KEYS   state, log, base of each window
-- ARGV   limits and windows, see list_windows; then all
--        requests in one string, see decide
-- reply  time (ms); then for each request 1 or 0, and for each of its claims what
--        is left (-1: banned) and the wait (ms). 2 for 1 or 0: something is of another
--        type than it should be, -2 says of which claims; nothing was taken
-- The whole script is one step for everybody else.
local windows, first = read_windows()
local reply = decide_all(windows, ARGV[first], false)
for i = 1, #windows do
  if not windows[i].bad then windows[i].l.kind.keep(windows[i]) end
end
return reply
