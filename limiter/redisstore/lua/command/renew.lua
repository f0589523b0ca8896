-- renew begins the leases anew of what one decision took.
-- KEYS, ARGV  as for take, but for requests the decision's ID, its time (ms), and its cost in
--             each window
-- reply       how many windows still held it
local held = 0
for i, w in ipairs(list_windows()) do
  if w.l.algorithm == CONCURRENT then held = held + w.algorithm.renew(w, ARGV[3], tonumber(ARGV[4 + i])) end
end
return held
