-- refund gives back what one decision took, once.
-- KEYS   state, log, base of each window
-- ARGV   limits and windows, see list_windows; then the
--        decision's id, its time (ms), and its cost in each window
-- reply  how many permits were given back in all
local windows, first = list_windows()
local id, at, given = ARGV[first], tonumber(ARGV[first + 1]), 0
for i, w in ipairs(windows) do
  local n = w.l.kind.refund(w, id, tonumber(ARGV[first + 1 + i]), at)
  if n > 0 and w.l.algorithm ~= CONCURRENT then tell(w) end
  given = given + n
end
return given
