-- Pieces of scripts: weave puts them in the places of the lines that name them, because
-- to call a function costs as much as what it would do there.

--@ cost
if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
--@ count claims
local n, like = byte(requests, from), false
if n > 128 then n, like = n - 128, true end -- see plain_boxes.lua
--@ define general
if not one then
  --@ general
  one = general()
end
--@ request
-- The request at `from`, over the windows behind the base-th: `next` is where the next begins.
  --@ count claims
local to, next = r, nil
local read_all, usual = pcall(fetch, base, n)
if read_all and usual then
  next = answer(from, base)
  usual = fits(n)
end
if read_all and usual then
  store()
else
  --@ define general
  next, r = one(base, n, from, reply, to)
end
--@ set state
if state then
  call('SET', key, text, 'PX', ttl)
else -- what is of another type looks like nothing in an MGET
  usual = call('SET', key, text, 'PX', ttl, 'NX')
end
--@ asked
-- asked reads the request at `from`, of n claims: into costs; its shape is returned, and
-- nothing if it asks for others than all the windows of the next key, each once.
local costs = {}
local function asked(from, base, n)
  local at, o, limits = from + 10, 3 * base + 1, {}
  for j = 1, n do
    local l, x, y = byte(of, o, o + 2)
    local cost, c, d, e, u, z = byte(requests, at, at + 5)
    if x + y * 256 ~= key + 1 or u + z * 256 ~= base + j then return end
    --@ cost
    limits[j], costs[j] = l, cost
    at, o = at + 6, o + 3
  end
  local id = char(unpack(limits))
  if not shapes[id] then shapes[id] = shaped(limits) end
  return shapes[id]
end
--@ shape
if not like then shape = asked(from, base, n) end
if not shape then return end
local k, to, at = key + 1, r + 1, from + 10 + 6 * n
local NOW, reply, costs = NOW, reply, costs -- they are read for each window
--@ set box
if raw then
  call('SET', KEYS[k], text, 'PX', life)
elseif not call('SET', KEYS[k], text, 'PX', life, 'NX') then
  return -- what is of another type looks like nothing in an MGET
end
r, key = to, k
return at
--@ unpack entries
local form, before, newest, taken, count, at = 1, NOW, NOW, 0, 0, 1
local size = 0
if state then
  form, size = 0, #state
  if sub(state, 1, #tag) == tag then
    if size == #tag + ONE_SIZE and byte(state, #tag + 1) == 3 then
      form, before, newest, taken, count, at = 1, one_of(state, #tag + 1)
    elseif size >= #tag + 19 then
      form, before, newest, taken, count, at = struct_unpack(HEAD, state, #tag + 1)
    end
  end
end
--@ pack entry
if after < 65536 and cost < 256 then
  made = struct_pack('<BI2Bc8', 18, after, cost, id)
else
  made = packed(after, cost, id)
end
