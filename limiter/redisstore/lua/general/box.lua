-- A box is what one key holds: the states of all windows that a key has of limits whose
-- names differ in their tags only (what follows the last colon; its length comes first).
--   one window   its tag, and its state
--   several      a byte 255; then of each the ms until which it lives (6 bytes), the
--                length of what follows (3), its tag, and its state
-- Together they cost about what one of them costs: one string is read and written.

local MANY = char(255)
local boxes = {}

-- unboxed lists what raw holds that still lives.
local function unboxed(raw)
  local box = {}
  if not raw then return box end
  if byte(raw) ~= 255 then
    if #raw < byte(raw) + 2 then error('a box that is cut') end
    box[1] = { tag = sub(raw, 1, byte(raw) + 1), text = raw, dies = false }
    return box
  end
  local at = 2
  while at <= #raw do
    local dies, size, from = struct.unpack('<I6I3', raw, at)
    at = from + size
    if at > #raw + 1 then error('a box that is cut') end
    local text = sub(raw, from, at - 1)
    if dies > NOW then box[#box + 1] = { tag = sub(text, 1, byte(text) + 1), text = text, dies = dies } end
  end
  return box
end

-- inside is what the box of w holds of w; raw is what is known of it already.
local function inside(w, raw)
  local box = boxes[w.state]
  if not box then
    if not raw and call('EXISTS', w.state) == 1 then error('the state is no string') end
    box = unboxed(raw)
    boxes[w.state] = box
  end
  for i = 1, #box do
    if box[i].tag == w.l.tag then return box[i] end
  end
end

-- load_state is the state of w.
local function load_state(w)
  local own = inside(w, not boxes[w.state] and call('GET', w.state))
  return own and sub(own.text, #w.l.tag + 1)
end

-- save_state writes the state of w, to live for so many ms, or as long as it had.
local function save_state(w, state, life)
  local key, own = w.state, inside(w)
  local box = boxes[key]
  if not own then
    own = { tag = w.l.tag }
    table.insert(box, own)
  end
  own.text = own.tag .. state
  if life then own.dies = NOW + life end
  if #box == 1 then
    if life then call('SET', key, own.text, 'PX', int(life)) else call('SET', key, own.text, 'KEEPTTL') end
    return
  end
  local parts, last = { MANY }, 0
  for i = 1, #box do
    local o = box[i]
    if not o.dies then o.dies = NOW + math.max(1, call('PTTL', key)) end -- it was alone
    parts[2 * i], parts[2 * i + 1] = struct.pack('<I6I3', o.dies, #o.text), o.text
    last = math.max(last, o.dies)
  end
  call('SET', key, table.concat(parts), 'PX', int(last - NOW))
end

-- empty forgets what the box of w holds of w, and all of it if nobody can read it.
local function empty(w)
  local ok, own = pcall(function() return inside(w, call('GET', w.state)) end)
  if not ok then
    call('DEL', w.state)
    boxes[w.state] = {}
  elseif own then
    own.text = own.tag
  end
end
