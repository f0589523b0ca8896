-- ban refuses keys for some time, or ends that.
-- KEYS, ARGV  as for take, but for requests how long, in ms; 0 ends a ban
-- reply       1
for _, w in ipairs(list_windows()) do
  w.algorithm.ban(w, ARGV[3] == '0' and 0 or NOW + ARGV[3])
  publish_change(w)
end
return 1
