-- How many.lua decides a request of several claims, on packed strings that hold nothing but its
-- windows, in its order. Of a request for which fast is false nothing is written.

-- Of each claim: its cost, the numbers of its limit and key, what is left before it, and the
-- state after it.
local costs, limits, keys, lefts, states = {}, {}, {}, {}, {}
local lives, dies, sizes = {}, {}, {} -- of each limit and size, and how a packed string says when and how long

-- read_claims reads what the request asks for.
local function read_claims()
  local at = from + 10
  for j = 1, claims do
    local b, c, d, e, x, y = byte(requests, at, at + 5)
    if c + d + e > 0 then b = b + c * 256 + d * 65536 + e * 16777216 end
    costs[j], x = b, 3 * (x + y * 256)
    limits[j], x, y = byte(windows, x - 2, x)
    keys[j], at = x + y * 256, at + 6
  end
end

-- write_states packs the states of each key into its string.
local function write_states()
  local j = 1
  while j <= claims and fast do
    key_number, limit = keys[j], limits[j]
    if j == claims or keys[j + 1] ~= key_number then
      text, life, j = states[j], ttls[limit], j + 1
    else
      local longest = 0
      text = MANY
      while j <= claims and keys[j] == key_number do
        limit, state = limits[j], states[j]
        lives[limit] = lives[limit] or tonumber(ttls[limit])
        dies[limit] = dies[limit] or pack('<I6', NOW + lives[limit])
        sizes[#state] = sizes[#state] or pack('<I3', #state)
        if lives[limit] > longest then longest, life = lives[limit], ttls[limit] end
        text, j = text .. dies[limit] .. sizes[#state] .. state, j + 1
      end
    end
    write_string()
  end
end

-- decide_several decides a request of several claims.
local function decide_several()
  local next, size, several, to = 1, 0, false, replied + 1
  release()
  allowed, key_number = 1, 0
  reply[to] = 1 -- first: what lies behind a hole makes another kind of table
  for j = 1, claims do
    limit, cost = limits[j], costs[j]
    if limit ~= limit_in_use then
      use_limit()
    end
    if keys[j] ~= key_number then
      fast = next > size and keys[j] > key_number -- the string before has no other windows, and is not met again
      key_number = keys[j]
      packed = strings[key_number]
      next, size, several = 1, packed and #packed or 0, packed and byte(packed) == 255
      if several then next = 2 end
      if fast and not packed and keys[1] ~= keys[claims] then -- all or none
        fast = call('EXISTS', KEYS[key_number]) == 0
      end
    elseif packed and not several then
      fast = false
    end
    if packed and fast then
      last = size
      if several then
        local x, y, z = byte(packed, next + 6, next + 8)
        next = next + 9
        last = z and next - 1 + x + y * 256 + z * 65536 or size + 1
      end
      fast, first = last <= size and sub(packed, next, next + #field - 1) == field, next + #field
      next = last + 1
    end
    if fast then
      open()
    end
    if not fast then break end
    lefts[j], later = left, 0
    if cost > left then
      allowed = 0
      wait()
    elseif allowed == 1 then
      take()
      if not fast then break end
      save()
      states[j] = state
      if cost > left then
        wait()
      end
    end
    reply[to + 1], reply[to + 2] = left < 0 and 0 or left, later
    to = to + 2
  end
  fast = fast and next > size
  if fast and allowed == 1 then
    write_states()
  elseif fast then -- what was taken is not
    reply[replied + 1] = 0
    for j = 1, claims do
      if costs[j] <= lefts[j] then reply[replied + 2 * j], reply[replied + 2 * j + 1] = lefts[j], 0 end
    end
  end
end

local function decide_request()
  if claims == 1 then
    decide_one()
  else
    read_claims()
    decide_several()
  end
end

local function write_back()
  release()
  write_all()
end

-- read_again reads what general has written.
local function read_again()
  for j = 1, claims do
    local k = claims == 1 and key_number or keys[j]
    strings[k] = call('MGET', KEYS[k])[1]
  end
end
