-- Many windows that lie in boxes, see box.lua, some at a time. Of the i-th of those an
-- algorithm says how it is read, read(i, l, raw, at, last): raw holds its state from `at`
-- to `last`, or is false; it is false itself if something is unusual. And how it is
-- written, write(i, l): as parts of its state.
local MANY = char(255)
local struct_pack, struct_unpack = struct.pack, struct.unpack
local got, lefts, granted, limit_of = call('MGET', unpack(KEYS)), {}, {}, {}
local raws, starts, lasts, dies, firsts, others = {}, {}, {}, {}, {}, {}
local key0, key = 0, 0 -- the keys of those windows are behind key0, up to key

-- find is where in a box of many the window of that tag begins, how long it lives and
-- how long it is; so far nothing if it is not there.
local function find(raw, tag)
  local at = 2
  while at <= #raw do
    local died, size, from = struct_unpack('<I6I3', raw, at)
    if sub(raw, from, from + #tag - 1) == tag then return died, size, from end
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

-- fetch reads the n windows behind the base-th. It is false if one is unusual, or one
-- of another key stands between those of a key.
local function fetch(read, base, n)
  local raw, many, at = false, false, 1
  key0 = key
  for i = 1, n do
    local w = 3 * (base + i)
    local l, x, y = byte(of, w - 2, w)
    local k, tag, own, last = x + y * 256, tags[l], false, 0
    limit_of[i], granted[i] = l, false
    if k ~= key then
      if k ~= key + 1 then return false end
      if many and at <= #raw then others[key - key0] = true end
      key, raw, at, firsts[k - key0], others[k - key0] = k, got[k], 2, i, false
      many = raw and byte(raw) == 255
      if not raw and call('EXISTS', KEYS[k]) == 1 then return false end
    end
    local start
    if many then
      local died, size
      if at <= #raw then died, size, start = struct_unpack('<I6I3', raw, at) end
      if not start or sub(raw, start, start + #tag - 1) ~= tag then
        others[k - key0] = true
        died, size, start = find(raw, tag)
      end
      if start then
        last = start + size - 1
        at = last + 1
        if at > #raw + 1 then return false end
        if died > NOW then own, dies[i] = raw, died end
      end
    elseif raw then
      if sub(raw, 1, #tag) == tag then
        own, start, last, dies[i] = raw, 1, #raw, NOW + ttls[l]
      elseif not raws[firsts[k - key0]] or firsts[k - key0] == i then
        return false -- it is of a window that is not asked for, or not first
      end
    end
    raws[i], starts[i], lasts[i] = own, start, last
    if not read(i, l, own, own and start + #tag, last) then return false end
  end
  if many and at <= #raw then others[key - key0] = true end
  firsts[key - key0 + 1] = n + 1
  return true
end

-- skip goes on behind the windows up to the w-th.
local function skip(w)
  local x, y = byte(of, 3 * w - 1, 3 * w)
  key = x + y * 256
end

-- fits is false if what was granted cannot be written here.
local function fits() return true end

-- box is the new box of KEYS[k], whose windows are first to last, and until when it lives.
local function box(k, first, last, write)
  local out, latest = MANY, 0
  for i = first, last do
    local l, till = limit_of[i], dies[i]
    if granted[i] then
      local tag, a, b, c = tags[l], write(i, l)
      till = NOW + ttls[l]
      out = out .. struct_pack('<I6I3', till, #tag + #a + #b + #c) .. tag .. a .. b .. c
      if till > latest then latest = till end
    elseif raws[i] then
      local own = sub(raws[i], starts[i], lasts[i])
      out = out .. struct_pack('<I6I3', till, #own) .. own
      if till > latest then latest = till end
    end
  end
  if not others[k - key0] then return out, latest end
  local more, till = rest(k)
  return out .. more, math.max(latest, till)
end

-- store writes the boxes of which something was granted.
local function store(write)
  for k = key0 + 1, key do
    local first, last, changed = firsts[k - key0], firsts[k - key0 + 1] - 1, false
    for i = first, last do changed = changed or granted[i] end
    if changed and first == last and not others[k - key0] then
      local l = limit_of[first]
      local a, b, c = write(first, l)
      call('SET', KEYS[k], tags[l] .. a .. b .. c, 'PX', ttls[l])
    elseif changed then
      local text, till = box(k, first, last, write)
      call('SET', KEYS[k], text, 'PX', count_text(till - NOW))
    end
  end
end
