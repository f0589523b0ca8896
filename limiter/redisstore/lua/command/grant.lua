-- grant gives keys permits on top, as if their latest had not been taken.
-- KEYS, ARGV  as for take, but for requests the permits for each window
-- reply       1
return change_all(function(w, i) w.algorithm.grant(w, tonumber(ARGV[2 + i])) end)
