-- refund gives back what one decision took, once.
-- KEYS, ARGV  as for take, but for requests the decision's ID, its time (ms), and its cost in
--             each window
-- reply       how many permits were given back in all
local id, at, given = ARGV[3], tonumber(ARGV[4]), 0
for i, w in ipairs(list_windows()) do
  local n = w.algorithm.refund(w, id, tonumber(ARGV[4 + i]), at)
  if n > 0 and w.l.algorithm ~= CONCURRENT then publish_change(w) end
  given = given + n
end
return given
