-- grant gives keys permits on top, as if their latest had not been taken.
-- KEYS, ARGV  as for take, but for requests the permits for each window
-- reply       1
for i, w in ipairs(list_windows()) do
  w.algorithm.grant(w, tonumber(ARGV[2 + i]))
  publish_change(w)
end
return 1
