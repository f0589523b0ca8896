-- reset forgets what is counted, and bans. A refund horizon remains, so that nothing taken before is
-- given back to what is taken from now on.
-- KEYS, ARGV  as for take, without requests
-- reply       1
return change_all(function(w) w.algorithm.reset(w) end)
