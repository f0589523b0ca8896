-- window takes n permits of a limiter in the form of Redisson up to 3.13.2: value
-- counts down from the rate and lives for one interval.
-- ARGV   n
-- reply  1 or 0, what is left, the wait (ms) for n, the rate; or the error UNSET
local w = handle()
if not w then return UNSET end
local n = tonumber(ARGV[1])
local left = tonumber(call('GET', w.state))
if not left then
  left = w.l.rate
  call('SET', w.state, int(left), 'PX', int(w.l.length))
end
local allowed = n <= left
if allowed then
  left = left - n
  call('DECRBY', w.state, int(n))
end
local wait = 0
if left < n then wait = math.max(1, call('PTTL', w.state)) end
return { allowed and 1 or 0, left, wait, w.l.rate }
