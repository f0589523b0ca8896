-- renew makes the leases of what one decision took begin anew.
-- KEYS, ARGV  those of refund
-- reply       how many windows still held it
local windows, first = list_windows()
local held = 0
for i, w in ipairs(windows) do
  if w.l.algorithm == CONCURRENT then
    held = held + bucket.renew(w, ARGV[first], tonumber(ARGV[first + 1 + i]))
  end
end
return held
