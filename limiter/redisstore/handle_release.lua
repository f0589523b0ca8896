-- release gives n permits back to a Redisson limiter: it takes them out of the
-- youngest entries, so that there never are more than the rate.
-- ARGV   n
-- reply  1; or the error UNSET
local w = handle()
if not w then return UNSET end
bucket.grant(w, tonumber(ARGV[1]))
expire(w)
return 1
