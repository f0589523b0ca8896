-- Many windows that lie in boxes, see box.lua. An algorithm says how it reads the i-th
-- window, of the limit l, from its string, which begins with its tag, or from nothing:
-- read(i, l, text) is false if something is unusual; and writes it: write(i, l).
local of, requests, MANY = ARGV[2], ARGV[3], char(255)
local struct_pack, struct_unpack = struct.pack, struct.unpack
local got, lefts, granted, limit_of = call('MGET', unpack(KEYS)), {}, {}, {}
local texts, dies, firsts, others = {}, {}, {}, {}

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

-- rest is what the k-th box has of windows that nobody asks for, and until when that
-- lives.
local function rest(k)
  local raw, at, out, last, own = got[k], 2, '', 0, {}
  for i = firsts[k], firsts[k + 1] - 1 do own[tags[limit_of[i]]] = true end
  while at <= #raw do
    local died, size, from = struct_unpack('<I6I3', raw, at)
    if died > NOW and not own[sub(raw, from, from + byte(raw, from))] then
      out, last = out .. sub(raw, at, from + size - 1), math.max(last, died)
    end
    at = from + size
  end
  return out, last
end

-- fetch reads all windows. It is false if one is unusual, or one of another key stands
-- between those of a key.
local function fetch(read)
  local key, raw, many, at = 0, false, false, 1
  for i = 1, #of / 3 do
    local l, x, y = byte(of, 3 * i - 2, 3 * i)
    local k, tag, text = x + y * 256, tags[l], nil
    limit_of[i] = l
    if k ~= key then
      if k ~= key + 1 then return false end
      if many and at <= #raw then others[key] = true end
      key, raw, at, firsts[k] = k, got[k], 2, i
      many = raw and byte(raw) == 255
      if not raw and call('EXISTS', KEYS[k]) == 1 then return false end
    end
    if many then
      local died, size, start
      if at <= #raw then died, size, start = struct_unpack('<I6I3', raw, at) end
      if not start or sub(raw, start, start + #tag - 1) ~= tag then
        others[k] = true
        died, size, start = find(raw, tag)
      end
      if start then
        at = start + size
        if at > #raw + 1 then return false end
        if died > NOW then text, dies[i] = sub(raw, start, at - 1), died end
      end
    elseif raw then
      if sub(raw, 1, #tag) == tag then
        text, dies[i] = raw, NOW + ttls[l]
      elseif not texts[firsts[k]] then
        return false -- it is of a window that is not asked for, or not first
      end
    end
    texts[i] = text
    if not read(i, l, text) then return false end
  end
  if many and at <= #raw then others[key] = true end
  firsts[key + 1] = #of / 3 + 1
  return true
end

-- fits is false if what was granted cannot be written here.
local function fits() return true end

-- store writes the boxes of all windows of which something was granted.
local function store(write)
  for k = 1, #KEYS do
    local first, last, out, count, text, life = firsts[k], firsts[k + 1] - 1, MANY, 0, nil, nil
    local changed, latest = false, 0
    for i = first, last do changed = changed or granted[i] end
    if changed then
      for i = first, last do
        local own, l, till = texts[i], limit_of[i], dies[i]
        if granted[i] then
          own, life = tags[l] .. write(i, l), ttls[l]
          till = NOW + life
        end
        if own then
          count, text = count + 1, own
          if first < last or others[k] then out = out .. struct_pack('<I6I3', till, #own) .. own end
          if till > latest then latest = till end
        end
      end
      local more, till = '', 0
      if others[k] then more, till = rest(k) end
      if count == 1 and more == '' then
        call('SET', KEYS[k], text, 'PX', life)
      else
        call('SET', KEYS[k], out .. more, 'PX', count_text(math.max(latest, till) - NOW))
      end
    end
  end
end
