-- report counts what was granted elsewhere while this Redis could not be asked, whatever is
-- left. A log knows its grants by their IDs, so one that is reported twice counts once, as long
-- as it is not merged.
-- KEYS, ARGV  as for take, but for requests the grants of each window, as read_grants reads them
-- reply       the time of Redis (ms): a grant counts as made that time less its age
for i, w in ipairs(list_windows()) do
  local list = read_grants(ARGV[2 + i], w.algorithm.valued and 26 or 18, w.l.horizon)
  if #list > 0 then try(w.algorithm.report, w, list) end
end
return NOW
