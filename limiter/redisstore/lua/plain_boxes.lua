-- plain decides a request whose windows are all that one box holds, in their order, if
-- nothing about them is unusual: the box is read and written with one format for all of
-- it, and its values stay in one table meanwhile. States are of one size there.
-- How an algorithm reads a window, takes from it, says how it stands without that, and
-- reckons how long a wait is, on the values v[p+1] and following of limit l, stands in its
-- many_ALGORITHM.lua: see many_boxes.lua. v[p] is what is in front of them: see heads.
local shapes = {}

-- shaped is what is known of boxes of windows of these limits.
local function shaped(limits)
  local n = #limits
  local format, fresh, heads, m, most, life = n > 1 and '<B' or '<', {}, {}, 0, 0, nil
  if n > 1 then
    m = 1
    fresh[1] = 255
  end
  for j = 1, n do
    local l = limits[j]
    lay_out(l)
    heads[j] = tags[l] .. char(1)
    if n > 1 then
      heads[j] = struct_pack('<I3', #tags[l] + SIZE) .. heads[j]
      m = m + 1
      format, fresh[m] = format .. 'I6', NOW + lives[l]
    end
    format = format .. 'c' .. #heads[j] .. sub(LAYOUT, 3)
    fresh[m + 1] = heads[j]
    for f = 1, #FRESH do fresh[m + 1 + f] = FRESH[f] end
    m = m + 1 + #FRESH
    if lives[l] > most then most, life = lives[l], ttls[l] end
  end
  local size = #struct_pack(format, unpack(fresh, 1, m))
  return { format = format, fresh = fresh, limits = limits, heads = heads, m = m, size = size, life = life }
end

  --@ asked
local shape -- of the request that was read last

-- refuse answers a request that some window refuses, and returns where the next begins.
local function refuse(from, n)
  local k, to, limits, heads, p = key + 1, r + 1, shape.limits, shape.heads, n > 1 and 3 or 1
  local v = { struct_unpack(shape.format, got[k]) }
  reply[to] = 0
  for j = 1, n do
    local l, cost = limits[j], costs[j]
    if v[p] ~= heads[j] then return end
    local left, wait
    --@ stands
    reply[to + 1], reply[to + 2] = left < 0 and 0 or left, wait or 0
    to, p = to + 2, p + STEP
  end
  r, key = to, k
  return from + 10 + 6 * n
end

-- plain returns where the next request begins; nothing if this one needs more. A request
-- that is `like` the one before asks for windows of the same limits, in the same order
-- and at the same costs, in a key of its own: there is nothing to read but its id.
local function plain(from, base, n, like)
  --@ shape
  local raw, v = got[k], nil
  if not raw then
    v = { unpack(shape.fresh, 1, shape.m) }
  elseif #raw == shape.size then
    v = { struct_unpack(shape.format, raw) }
  else
    return
  end
  local fresh, limits, heads, p = shape.fresh, shape.limits, shape.heads, n > 1 and 3 or 1
  reply[to] = 1 -- first: what is behind a hole makes a table of another kind
  for j = 1, n do
    local l, cost = limits[j], costs[j]
    if v[p] ~= heads[j] then return end
    local left, wait
    --@ take
    if left < 0 then return raw and refuse(from, n) end
    if cost > left then
      --@ reckon
    end
    reply[to + 1], reply[to + 2] = left, wait or 0
    if n > 1 then v[p - 1] = fresh[p - 1] end
    to, p = to + 2, p + STEP
  end
  local text, life = struct_pack(shape.format, unpack(v, 1, shape.m)), shape.life
  --@ set box
end
