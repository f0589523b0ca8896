-- confirm counts a subject in windows whose permits it gave back.
-- KEYS, ARGV  as for take, but for requests when it was confirmed before, in ms
-- reply       1
return change_all(function(w) w.algorithm.confirm(w, tonumber(ARGV[3])) end)
