-- plain decides a request whose windows are all that one box holds, in their order, if
-- nothing about them is unusual: see plain_boxes.lua. It refuses as well, because a
-- cooldown does that most of the time.
local out, befores, newests, levels, counts, bodies, lasts = {}, {}, {}, {}, {}, {}, {}

-- look learns of the n windows of the request that begins at `from`, writes into the reply
-- what refuses it, and reports whether one does; nothing if it needs more.
local function look(raw, from, base, n)
  local at, o, to, size, next, refused = from + 10, 3 * base + 1, r + 1, raw and #raw or 0, 1, false
  if n > 1 then
    if raw and byte(raw) ~= 255 then return end
    next = 2
  end
  reply[to] = 0 -- first: what is behind a hole makes a table of another kind
  for j = 1, n do
    local l, x, y = byte(of, o, o + 2)
    local cost, e, f, g, u, z = byte(requests, at, at + 5)
    if x + y * 256 ~= key + 1 or u + z * 256 ~= base + j or cost ~= 1 or e + f + g > 0 then return end
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
      if its ~= tag or form ~= 1 or last > size then return end
      --@ trim
      if newest > NOW or count >= PAUSES then return end
    end
    befores[j], newests[j], levels[j], counts[j], bodies[j], lasts[j] = before, newest, taken, count, body, last
    local wait = taken > 0 and newest + pause(l, taken) - NOW or 0
    if wait > 0 then
      refused = true
      reply[to + 1], reply[to + 2] = 0, wait
    else
      reply[to + 1], reply[to + 2] = 1, 0
    end
    at, o, to = at + 6, o + 3, to + 2
  end
  if next <= size then return end
  return refused, to
end

-- plain returns where the next request begins; nothing if this one needs more.
local function plain(from, base, n)
  local k, o, to, m, most, life = key + 1, 3 * base + 1, r + 1, 0, 0, nil
  local raw = got[k]
  local refused, last = look(raw, from, base, n)
  if refused == nil then return end
  if not refused then
    local id = sub(requests, from + 2, from + 9)
    if n > 1 then out[1], m = MANY, 1 end
    reply[to] = 1
    for j = 1, n do
      local l = byte(of, o)
      local tag, level, new = tags[l], levels[j] + 1, packed(NOW - newests[j], 1, id)
      local kept = lasts[j] + 1 - bodies[j]
      if n > 1 then
        out[m + 1] = struct_pack(boxed[l], NOW + lives[l], #tag + SIZE + kept + #new, tag, 1, befores[j], NOW, level, counts[j] + 1)
      else
        out[m + 1] = struct_pack(alone[l], tag, 1, befores[j], NOW, level, counts[j] + 1)
      end
      out[m + 2], out[m + 3] = kept > 0 and sub(raw, bodies[j], lasts[j]) or '', new
      if lives[l] > most then most, life = lives[l], ttls[l] end
      reply[to + 1], reply[to + 2] = 0, pause(l, level)
      o, to, m = o + 3, to + 2, m + 3
    end
    local text = table.concat(out, '', 1, m)
    if raw then
      call('SET', KEYS[k], text, 'PX', life)
    elseif not call('SET', KEYS[k], text, 'PX', life, 'NX') then
      return -- what is of another type looks like nothing in an MGET
    end
  end
  r, key = last, k
  return from + 10 + 6 * n
end
