-- peek says what take would say, and writes nothing. KEYS, ARGV and reply are
-- those of take; what is left is what is left without the request.
local now = clock()
local windows, first = read_windows(now)
local reply = { now }
for i = first, #ARGV do decide(windows, ARGV[i], reply, true) end
return reply
