-- Many windows that lie in boxes, see box.lua, some at a time. What an algorithm has of
-- its own stands in its many_ALGORITHM.lua, in sections that weave puts in the place of
-- the lines that name them: to call a function costs as much as what it would do here.
--   begin   LAYOUT, how its state begins
--   alone   reads what LAYOUT says of a window that is alone in its box, raw
--   tables  what is known of each window: see read
--   read    of the i-th window, of limit l: form, a, b, c, d are what LAYOUT says if `own`,
--           and the rest of the state is in raw from `body` to `last`; sets lefts[i]. What
--           it cannot decide makes fetch return false.
--   wait    functions wait and fits, see answer.lua
--   grant   takes `cost` from the w-th, for the request of the id at `id`
--   write   sets v1 to v4, which LAYOUT has behind the form, and text, which follows
-- and those of plain_boxes.lua.
local limit_of, lefts, granted, raws, starts, lasts, dies, firsts, others = {}, {}, {}, {}, {}, {}, {}, {}, {}
local key0 = 0 -- the keys of those windows are behind key0, up to key
--@ tables

-- find is where in a box of many the window of that tag begins; nothing if it is not there.
local function find(raw, tag)
  local at = 2
  while at <= #raw do
    local _, size, from = struct_unpack('<I6I3', raw, at)
    if sub(raw, from, from + #tag - 1) == tag then return at end
    at = from + size
  end
end

-- rest is what the box of KEYS[k] has of windows that nobody asks for, and until when
-- that lives.
local function rest(k)
  local raw, at, out, last, own = got[k], 2, '', 0, {}
  for i = firsts[k - key0], firsts[k - key0 + 1] - 1 do own[tags[limit_of[i]]] = true end
  while at <= #raw do
    local died, size, from = struct_unpack('<I6I3', raw, at)
    if died > NOW and not own[sub(raw, from, from + byte(raw, from))] then
      out, last = out .. sub(raw, at, from + size - 1), math.max(last, died)
    end
    at = from + size
  end
  return out, last
end

-- fetch reads the n windows behind the base-th. It is false, or fails, if one is unusual,
-- or one of another key stands between those of a key.
local function fetch(base, n)
  local raw, many, at, o = false, false, 1, 3 * base + 1
  key0 = key
  for i = 1, n do
    local l, x, y = byte(of, o, o + 2)
    local k, tag, own, body, last = x + y * 256, tags[l], false, 1, 0
    local died, size, its, form, a, b, c, d
    o = o + 3
    if not boxed[l] then lay_out(l) end
    if k ~= key then
      if k ~= key + 1 then return false end
      if many and at <= #raw then others[key - key0] = true end
      key, raw, at = k, got[k], 2
      firsts[k - key0], others[k - key0] = i, false
      many = raw and byte(raw) == 255
      if not raw and call('EXISTS', KEYS[k]) == 1 then return false end
      if raw and not many then -- one of a window that is not asked for, or not first, is unusual
        body = #tag + SIZE + 1
        --@ alone
        if its ~= tag then return false end
        own, died, last = true, NOW + lives[l], #raw
        starts[i] = 1
      end
    end
    if many then
      local from = at
      if at <= #raw then died, size, its, form, a, b, c, d = struct_unpack(boxed[l], raw, at) end
      if its ~= tag then
        from = find(raw, tag)
        others[k - key0] = true
        if from then died, size, its, form, a, b, c, d = struct_unpack(boxed[l], raw, from) end
      end
      if its == tag then
        own, body, last = true, from + 9 + #tag + SIZE, from + 8 + size
        starts[i] = from + 9
        at = last + 1
        if at > #raw + 1 then return false end
      end
    end
    if own and form ~= 1 then return false end
    limit_of[i], granted[i], raws[i], lasts[i], dies[i] = l, false, own and raw, last, died
    --@ read
  end
  if many and at <= #raw then others[key - key0] = true end
  firsts[key - key0 + 1] = n + 1
  return true
end

-- box is the new box of KEYS[k], whose windows are first to last, and how long it lives.
local function box(k, first, last)
  local out, m, latest, life = { MANY }, 1, 0, nil
  for i = first, last do
    local l, till = limit_of[i], dies[i]
    if granted[i] then
      local tag, text, v1, v2, v3, v4 = tags[l], ''
      --@ write
      till = NOW + lives[l]
      out[m + 1], out[m + 2] = struct_pack(boxed[l], till, #tag + SIZE + #text, tag, 1, v1, v2, v3, v4), text
      m = m + 2
      if till > latest then latest, life = till, ttls[l] end
    elseif raws[i] and till > NOW then
      local own = sub(raws[i], starts[i], lasts[i])
      out[m + 1], out[m + 2] = struct_pack('<I6I3', till, #own), own
      m = m + 2
      if till > latest then latest, life = till, nil end
    end
  end
  if others[k - key0] then
    local till
    m = m + 1
    out[m], till = rest(k)
    if till > latest then latest, life = till, nil end
  end
  return table.concat(out), life or int(latest - NOW)
end

-- store writes the boxes of which something was granted.
local function store()
  for k = key0 + 1, key do
    local first, last, changed = firsts[k - key0], firsts[k - key0 + 1] - 1, false
    for i = first, last do changed = changed or granted[i] end
    if changed and first == last and not others[k - key0] then
      local i, l, text, v1, v2, v3, v4 = first, limit_of[first], ''
      --@ write
      call('SET', KEYS[k], struct_pack(alone[l], tags[l], 1, v1, v2, v3, v4) .. text, 'PX', ttls[l])
    elseif changed then
      local text, life = box(k, first, last)
      call('SET', KEYS[k], text, 'PX', life)
    end
  end
end
