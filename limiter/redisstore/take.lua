-- take decides requests one after another, each wholly or not at all.
-- KEYS   state, log, base of each window
-- ARGV   limits and windows, see list_windows; then the
--        requests, see decide
-- reply  time (ms); then for each request 1 or 0, and for each of its claims what
--        is left (-1: banned) and the wait (ms)
-- The whole script is one step for everybody else.
local windows, first = read_windows()
local reply = { NOW }
for i = first, #ARGV do decide(windows, ARGV[i], reply, false) end
for _, w in ipairs(windows) do w.kind.keep(w) end
return reply
