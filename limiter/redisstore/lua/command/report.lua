-- report counts what was granted elsewhere while this Redis could not be asked, whatever is
-- left. A log knows its grants by their IDs, so one that is reported twice counts once, as long
-- as it is not merged.
-- KEYS, ARGV  as for take, but for requests the grants of each window, oldest first, 18 bytes
--             each: ID (8), permits (4), age in ms (6); and the value (8) where values are counted
-- reply       the time of Redis (ms): a grant counts as made that time less its age

-- grants reads those that have not come back yet.
local function grants(text, w)
  local list = {}
  for i = 1, #text, w.algorithm.valued and 26 or 18 do
    local age = number(text, i + 12, 6)
    if age < w.l.horizon then
      local id, n = sub(text, i, i + 7), number(text, i + 8, 4)
      list[#list + 1] = { id = id, n = n, at = NOW - age, value = sub(text, i + 18, i + 25) }
    end
  end
  return list
end

for i, w in ipairs(list_windows()) do
  local list = grants(ARGV[2 + i], w)
  if #list > 0 then pcall(w.algorithm.report, w, list) end -- a bad key does not stop the others
end
return NOW
