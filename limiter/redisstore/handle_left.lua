-- left says how many permits of a Redisson limiter are left, and writes nothing.
-- reply  the number; or the error UNSET
local w = handle()
if not w then return UNSET end
recount(w)
return math.max(0, w.left)
