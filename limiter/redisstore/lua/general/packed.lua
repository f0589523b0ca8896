-- A packed string is what one key holds: the states of all windows that a key has of limits
-- whose names differ in their fields only, which follow the last colon.
--   one window   its field, beginning with the field's length, and its state
--   several      a byte 255; then of each the ms until which it lives (6 bytes), the
--                length of what follows (3), its field, and its state
local MANY = char(255)
local strings = {} -- of keys that were read: a list of { field, text, dies }

-- What the files of an algorithm may define, see packed_algorithm.lua.
local LOGGED, KEEPS_TTL, ONLY_BANNED = false, false, false
local merge, begin_now, current, confirm, known_id = nil, nil, nil, nil, nil

-- unpacked lists the windows in raw that still live.
local function unpacked(raw)
  local list, at = {}, 2
  if not raw then return list end
  if byte(raw) ~= 255 then
    if #raw < byte(raw) + 2 then error('a packed string that is cut') end
    list[1] = { field = sub(raw, 1, byte(raw) + 1), text = raw, dies = false }
    return list
  end
  while at <= #raw do
    local dies, size, from = struct.unpack('<I6I3', raw, at)
    at = from + size
    if at > #raw + 1 then error('a packed string that is cut') end
    local text = sub(raw, from, at - 1)
    if dies > NOW then list[#list + 1] = { field = sub(text, 1, byte(text) + 1), text = text, dies = dies } end
  end
  return list
end

-- inside is what the packed string of w has of w; raw is that string if it was read already.
local function inside(w, raw)
  local list = strings[w.state]
  if not list then
    if not raw and call('EXISTS', w.state) == 1 then error('the state is no string') end
    list = unpacked(raw)
    strings[w.state] = list
  end
  for i = 1, #list do
    if list[i].field == w.l.field then return list[i] end
  end
end

-- load_state is the state of w, nil if there is none.
local function load_state(w)
  local found = inside(w, not strings[w.state] and call('GET', w.state))
  return found and sub(found.text, #w.l.field + 1)
end

-- save_state writes the state of w, to live for so many ms, or as long as it had.
local function save_state(w, state, life)
  local key, found = w.state, inside(w)
  local list = strings[key]
  if not found then
    found = { field = w.l.field }
    table.insert(list, found)
  end
  found.text = found.field .. state
  if life then found.dies = NOW + life end
  if #list == 1 then
    if life then call('SET', key, found.text, 'PX', int(life)) else call('SET', key, found.text, 'KEEPTTL') end
    return
  end
  local parts, last = { MANY }, 0
  for i = 1, #list do
    local o = list[i]
    if not o.dies then o.dies = NOW + math.max(1, call('PTTL', key)) end -- it was alone
    parts[2 * i], parts[2 * i + 1] = struct.pack('<I6I3', o.dies, #o.text), o.text
    last = math.max(last, o.dies)
  end
  call('SET', key, table.concat(parts), 'PX', int(last - NOW))
end

-- forget_state forgets the state of w, and the whole string if it cannot be read, until it is written.
local function forget_state(w)
  local ok, found = pcall(function() return inside(w, call('GET', w.state)) end)
  if not ok then
    strings[w.state] = {}
  elseif found then
    found.text = found.field
  end
end
