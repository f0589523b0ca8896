-- report counts what was granted elsewhere while this Redis could not be asked.
-- ARGV   5 the grants, as read_grants reads them
-- reply  the time of Redis (ms): a grant counts as made that time less its age
return run(function()
  local w = limiter()
  local list = read_grants(ARGV[5], 18, w.length)
  if #list > 0 then report(w, list) end
  return NOW
end)
