-- publish_change says to all processes that a window may have room. A user who may not publish
-- may still give back.
local function publish_change(w)
  local field = w.cached_sum and '' or ' ' .. sub(w.l.field, 2)
  redis.pcall('PUBLISH', FREED, int(w.l.algorithm) .. ':' .. w.state .. field)
end

-- change_all changes all windows, by their numbers.
local function change_all(change)
  for i, w in ipairs(list_windows()) do
    change(w, i)
    publish_change(w)
  end
  return 1
end
