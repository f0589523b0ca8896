-- plain decides a request whose windows are all that one box holds, in their order, if
-- nothing about them is unusual, of algorithms that keep entries: see plain_boxes.lua,
-- which does this for states of one size.
local out = {}

-- refuse answers a request that some window refuses, and returns where the next begins.
local function refuse(from, base, n)
  local at, o, k, to = from + 10, 3 * base + 1, key + 1, r + 1
  local raw, next = got[k], n > 1 and 2 or 1
  local size = #raw
  reply[to] = 0
  for j = 1, n do
    --@ seen
    local left, wait
    --@ stands
    reply[to + 1], reply[to + 2] = left < 0 and 0 or left, wait
    at, o, to = at + 6, o + 3, to + 2
  end
  if next <= size then return end
  r, key = to, k
  return at
end

-- plain returns where the next request begins; nothing if this one needs more.
local function plain(from, base, n)
  local at, o, k, to = from + 10, 3 * base + 1, key + 1, r + 1
  local raw, next, m, most, life = got[k], 1, 0, 0, nil
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
      if after < 65536 and cost < 256 then
        made = struct_pack('<BI2Bc8', 18, after, cost, id)
      else
        made = packed(after, cost, id)
      end
      made_after, made_cost = after, cost
    end
    local kept = last + 1 - body
    if not raw then kept = 0 end
    if n > 1 then
      out[m + 1] = struct_pack(boxed[l], NOW + lives[l], #tag + SIZE + kept + #made, tag, 1, before, NOW, taken + cost, count + 1)
    else
      out[m + 1] = struct_pack(alone[l], tag, 1, before, NOW, taken + cost, count + 1)
    end
    if kept > 0 then
      out[m + 2], out[m + 3] = sub(raw, body, last), made
      m = m + 3
    else
      out[m + 2] = made
      m = m + 2
    end
    if lives[l] > most then most, life = lives[l], ttls[l] end
    reply[to + 1], reply[to + 2] = left, wait
    at, o, to = at + 6, o + 3, to + 2
  end
  if next <= size then return end
  local text = table.concat(out, '', 1, m)
  if raw then
    call('SET', KEYS[k], text, 'PX', life)
  elseif not call('SET', KEYS[k], text, 'PX', life, 'NX') then
    return -- what is of another type looks like nothing in an MGET
  end
  r, key = to, k
  return at
end
--@ seen
local l, x, y = byte(of, o, o + 2)
local cost, e, f, g, u, z = byte(requests, at, at + 5)
if x + y * 256 ~= k or u + z * 256 ~= base + j then return end
if e + f + g > 0 then cost = cost + e * 256 + f * 65536 + g * 16777216 end
if not boxed[l] then lay_out(l) end
local tag, before, newest, taken, count, body, last = tags[l], NOW, NOW, 0, 0, 1, 0
if raw then
  local _, length, its, form
  if n > 1 then
    _, length, its, form, before, newest, taken, count, body = struct_unpack(boxed[l], raw, next)
    last = next + 8 + length
  else
    local a, b, c, d
    --@ alone
    before, newest, taken, count, last = a, b, c, d, size
  end
  next = last + 1
  if its ~= tag or form ~= 1 or last > size or newest > NOW then return end
  --@ trim
end
