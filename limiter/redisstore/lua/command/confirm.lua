-- confirm counts a subject in windows whose permits it gave back.
-- KEYS, ARGV  as for take, but for requests when it was confirmed before, in ms
-- reply       1
for _, w in ipairs(list_windows()) do
  w.algorithm.confirm(w, tonumber(ARGV[3]))
  publish_change(w)
end
return 1
