-- plain decides a request whose windows are all that one box holds, in their order, if
-- nothing about them is unusual: the box is read and written with one format for all of
-- it, and its values stay in one table meanwhile. States are of one size there.
-- How an algorithm reads a window, takes from it, says how it stands without that, and
-- reckons how long a wait is, on the values v[p+1] and following of limit l, stands in its
-- many_ALGORITHM.lua: see many_boxes.lua.
local shapes = {}

-- shaped is what is known of boxes of n limits, the first of which is at o of the windows.
local function shaped(n, o)
  local format, fresh, limits, m, most, life = n > 1 and '<B' or '<', {}, {}, 0, 0, nil
  if n > 1 then
    m = 1
    fresh[1] = 255
  end
  for j = 1, n do
    local l = byte(of, o)
    o, limits[j] = o + 3, l
    lay_out(l)
    if n > 1 then
      format = format .. 'I6I3'
      fresh[m + 1], fresh[m + 2] = NOW + lives[l], #tags[l] + SIZE
      m = m + 2
    end
    format = format .. sub(alone[l], 2)
    fresh[m + 1], fresh[m + 2] = tags[l], 1
    for f = 1, #FRESH do fresh[m + 2 + f] = FRESH[f] end
    m = m + 2 + #FRESH
    if lives[l] > most then most, life = lives[l], ttls[l] end
  end
  return { format = format, fresh = fresh, limits = limits, m = m, size = #struct_pack(format, unpack(fresh, 1, m)), life = life }
end

-- refuse answers a request that some window refuses, and returns where the next begins.
local function refuse(from, base, n, shape)
  local at, o, k, to = from + 10, 3 * base + 1, key + 1, r + 1
  local v, fresh, limits, p = { struct_unpack(shape.format, got[k]) }, shape.fresh, shape.limits, n > 1 and 5 or 2
  reply[to] = 0
  for j = 1, n do
    --@ asked
    local left, wait
    --@ stands
    reply[to + 1], reply[to + 2] = left < 0 and 0 or left, wait or 0
    at, o, to, p = at + 6, o + 3, to + 2, p + STEP
  end
  r, key = to, k
  return at
end

-- plain returns where the next request begins; nothing if this one needs more.
local function plain(from, base, n)
  local at, o, k, to = from + 10, 3 * base + 1, key + 1, r + 1
  local id = 256 * byte(of, o) + n -- others that begin alike need more
  local raw, shape, v = got[k], shapes[id], nil
  if not shape then
    shape = shaped(n, o)
    shapes[id] = shape
  end
  if not raw then
    v = { unpack(shape.fresh, 1, shape.m) }
  elseif #raw == shape.size then
    v = { struct_unpack(shape.format, raw) }
  else
    return
  end
  local fresh, limits, p = shape.fresh, shape.limits, n > 1 and 5 or 2
  reply[to] = 1 -- first: what is behind a hole makes a table of another kind
  for j = 1, n do
    --@ asked
    local left, wait
    --@ take
    if left < 0 then return raw and refuse(from, base, n, shape) end
    if cost > left then
      --@ reckon
    end
    reply[to + 1], reply[to + 2] = left, wait or 0
    if n > 1 then v[p - 3] = fresh[p - 3] end
    at, o, to, p = at + 6, o + 3, to + 2, p + STEP
  end
  local text = struct_pack(shape.format, unpack(v, 1, shape.m))
  if raw then
    call('SET', KEYS[k], text, 'PX', shape.life)
  elseif not call('SET', KEYS[k], text, 'PX', shape.life, 'NX') then
    return -- what is of another type looks like nothing in an MGET
  end
  r, key = to, k
  return at
end
--@ asked
local l, x, y = byte(of, o, o + 2)
local cost, c, d, e, u, z = byte(requests, at, at + 5)
if x + y * 256 ~= k or u + z * 256 ~= base + j or limits[j] ~= l or v[p - 1] ~= fresh[p - 1] or v[p] ~= 1 then return end
if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
