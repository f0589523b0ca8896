-- peek says what take would say, and writes nothing. KEYS, ARGV and reply are
-- those of take; what is left is what is left without the request.
local windows, first = read_windows()
return decide_all(windows, ARGV[first], true)
