-- ban refuses keys for some time, or ends that.
-- KEYS, ARGV  as for take, but for requests how long, in ms; 0 ends a ban
-- reply       1
return change_all(function(w) w.algorithm.ban(w, ARGV[3] == '0' and 0 or NOW + ARGV[3]) end)
