-- The windows of this call that may have room. publish_changes names them to all processes in one message, for a cluster
-- carries each to all nodes; several begin with a line end, as earlier versions read one only. Not to publish is no error.
local changed = {}
local function add_change(w)
  local field = w.cached_sum and '' or ' ' .. sub(w.l.field, 2)
  changed[#changed + 1] = int(w.l.algorithm) .. ':' .. w.state .. field
end

local function publish_changes()
  if #changed > 0 then redis.pcall('PUBLISH', FREED, (#changed > 1 and '\n' or '') .. table.concat(changed, '\n')) end
end

-- try is f of a window and more; nil if the window cannot be read, which stops no other. What is wrong
-- with Redis itself, which may refuse writes, ends the script.
local function try(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  local code = string.match(type(result) == 'table' and result.err or result, '^[^%u]*(%u%u+) ')
  if code and code ~= 'WRONGTYPE' then error(result, 0) end
end

-- refund gives back n of what id took of w; nil if w cannot be read.
local function refund(w, id, n, at)
  local given = try(w.algorithm.refund, w, id, n, at)
  if given and given > 0 and w.l.algorithm ~= CONCURRENT then add_change(w) end
  return given
end

-- change_all changes all windows, by their numbers.
local function change_all(change)
  for i, w in ipairs(list_windows()) do
    change(w, i)
    add_change(w)
  end
  publish_changes()
  return 1
end
