-- plain decides a request whose windows are all that one box holds, in their order, if
-- nothing about them is unusual, of algorithms that keep entries: see plain_boxes.lua,
-- which does this for states of one size.
local shapes, out = {}, {}

-- shaped is what is known of boxes of windows of these limits: what is in front of the
-- state of each, how large it is without entries, and how one of many is packed; until
-- when each lives that is written now, and how long their key does.
local function shaped(limits)
  local heads, sizes, formats, dies, most, life = {}, {}, {}, {}, 0, nil
  for j = 1, #limits do
    local l = limits[j]
    lay_out(l)
    heads[j] = tags[l] .. char(1)
    sizes[j], formats[j], dies[j] = #tags[l] + SIZE, '<I6I3c' .. #heads[j] .. sub(LAYOUT, 3), NOW + lives[l]
    if lives[l] > most then most, life = lives[l], ttls[l] end
  end
  return { limits = limits, heads = heads, sizes = sizes, formats = formats, dies = dies, life = life }
end

  --@ asked
local shape -- of the request that was read last

-- refuse answers a request that some window refuses, and returns where the next begins.
local function refuse(from, n)
  local k, to, limits, heads, formats = key + 1, r + 1, shape.limits, shape.heads, shape.formats
  local raw, next = got[k], n > 1 and 2 or 1
  local size = #raw
  reply[to] = 0
  for j = 1, n do
    --@ seen
    local left, wait
    --@ stands
    reply[to + 1], reply[to + 2] = left < 0 and 0 or left, wait
    to = to + 2
  end
  if next <= size then return end
  r, key = to, k
  return from + 10 + 6 * n
end

-- plain returns where the next request begins; nothing if this one needs more.
local function plain(from, base, n, like)
  --@ shape
  local limits, heads, formats, sizes, dies = shape.limits, shape.heads, shape.formats, shape.sizes, shape.dies
  local raw, next, m = got[k], 1, 0
  local size, made, made_after, made_cost = raw and #raw or 0, nil, nil, nil
  if n > 1 then
    if raw and byte(raw) ~= 255 then return end
    next, m = 2, 1
    out[1] = MANY
  end
  reply[to] = 1 -- first: what is behind a hole makes a table of another kind
  for j = 1, n do
    --@ seen
    local left, wait
    --@ take
    local after = NOW - newest
    if made_after ~= after or made_cost ~= cost then
      local id = sub(requests, from + 2, from + 9)
      --@ pack entry
      made_after, made_cost = after, cost
    end
    local kept = last + 1 - body
    if n > 1 then
      out[m + 1] = struct_pack(formats[j], dies[j], sizes[j] + kept + #made, heads[j], before, NOW, taken + cost, count + 1)
    else
      out[m + 1] = struct_pack(alone[l], tags[l], 1, before, NOW, taken + cost, count + 1)
    end
    if kept > 0 then
      out[m + 2], out[m + 3] = sub(raw, body, last), made
      m = m + 3
    else
      out[m + 2] = made
      m = m + 2
    end
    reply[to + 1], reply[to + 2] = left, wait
    to = to + 2
  end
  if next <= size then return end
  local text, life = table.concat(out, '', 1, m), shape.life
  --@ set box
end
--@ seen
local l, cost = limits[j], costs[j]
local before, newest, taken, count, body, last
if not raw then
  before, newest, taken, count, body, last = NOW, NOW, 0, 0, 1, 0
else
  if n > 1 then
    local _, length, its
    _, length, its, before, newest, taken, count, body = struct_unpack(formats[j], raw, next)
    last = next + 8 + length
    if its ~= heads[j] then return end
  else
    local tag, its, form, a, b, c, d = tags[l], nil, nil, nil, nil, nil, nil
    --@ alone
    if its ~= tag or form ~= 1 then return end
    before, newest, taken, count, last = a, b, c, d, size
  end
  next = last + 1
  if last > size or newest > NOW then return end
  --@ trim
end
--@ alone
if byte(raw, #tag + 1) == 3 then
  its, form, a, b, c, d, body = sub(raw, 1, #tag), 1, one_of(raw, #tag + 1)
else
  its, form, a, b, c, d, body = struct_unpack(alone[l], raw)
end
--@ own entries
local before, newest, taken, count = NOW, NOW, 0, 0
if own then
  before, newest, taken, count = a, b, c, d
  --@ trim
end
--@ append entry
if raws[i] then text = sub(raws[i], froms[i], lasts[i]) .. text end
