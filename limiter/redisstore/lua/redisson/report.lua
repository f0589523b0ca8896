-- report counts what was granted elsewhere while this Redis could not be asked.
-- ARGV   5 the grants, oldest first, 18 bytes each: id (8), permits (4), age in ms (6)
-- reply  the time of Redis (ms): a grant counts as made that time less its age
return run(function()
  local w, text, list = limiter(), ARGV[5], {}
  for i = 1, #text, 18 do
    local age = number(text, i + 12, 6)
    if age < w.length then
      list[#list + 1] = { id = sub(text, i, i + 7), n = number(text, i + 8, 4), at = NOW - age }
    end
  end
  if #list > 0 then report(w, list) end
  return NOW
end)
