-- confirm counts a subject in windows whose permits it gave back.
-- KEYS, ARGV  as for take, without requests
-- reply       1
for _, w in ipairs(list_windows()) do
  if w.algorithm.confirm then w.algorithm.confirm(w) end
  publish_change(w)
end
return 1
