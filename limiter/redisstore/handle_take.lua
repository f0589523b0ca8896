-- take takes n permits of a Redisson limiter.
-- ARGV   n; 8 bytes of id
-- reply  1 or 0, what is left, the wait (ms) for n, the rate; or the error UNSET
local w = handle()
if not w then return UNSET end
local n = tonumber(ARGV[1])
recount(w)
local allowed = n <= w.left
if allowed then bucket.take(w, n, single(ARGV[2], n)) end
redisson.keep(w)
return { allowed and 1 or 0, math.max(0, w.left), bucket.wait(w, n), w.l.rate }
