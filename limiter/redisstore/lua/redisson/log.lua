-- What is done with a limiter that is counted as redisson_count.lua says.

-- wait is how many ms it takes until n permits are left; 0 is now. Beyond MOST
-- entries each is taken to hold one permit: it is never too short for who takes as
-- many as these hold.
local function wait(w, n)
  local short = n - w.left
  if short <= 0 then return 0 end
  if n > w.rate then return w.length end
  if w.counting or w.expired then return 1 end
  local at, rest = comes_back(w, short + (w.surplus or 0), MOST)
  if not at and not w.complete then
    local i = int(w.read + rest - 1)
    at = tonumber(ask('ZRANGE', w.log, i, i, 'WITHSCORES')[2])
  end
  return at and math.min(w.length, math.max(1, at + w.length - NOW)) or w.length -- or it was taken just now
end

local function take(w, id, n)
  w.left, w.given = w.left - n, w.given + n
  w.ids[#w.ids + 1], w.costs[#w.costs + 1] = id, n
end

-- enter writes one entry, unless its id is there. Where ids are short, one that is
-- somebody else's becomes the next.
local function enter(w, at, id, n)
  for _ = 1, w.packing == 'float' and 8 or 1 do
    if call('ZADD', w.log, 'NX', at, pack(w.packing, id, n)) == 1 then return 1 end
    id = little((number(id, 1, 4) + 1) % 4294967296, 4)
  end
  return 0
end

-- keep writes what was granted, and throws away what has expired.
local function keep(w)
  if w.merged then
    call('ZREMRANGEBYRANK', w.log, 0, MOST - 1)
    if #w.merged > 0 then call('ZADD', w.log, unpack(w.merged)) end
    return
  end
  if w.given == 0 and w.gone == 0 and not w.future then return end
  if w.gone > 0 and w.gone == w.size then
    call('UNLINK', w.log)
  elseif w.gone > 0 then
    call('ZREMRANGEBYRANK', w.log, 0, w.gone - 1)
  end
  if w.future then call('ZADD', w.log, 'XX', unpack(w.future)) end
  for i = 1, #w.ids do enter(w, now_text, w.ids[i], w.costs[i]) end
  call('SET', w.state, int(w.left), 'KEEPTTL')
  if w.is_new and w.given > 0 then configure(w) end
  if w.given > 0 or not w.value then expire(w) end
end

-- refund gives back n of the permits that id took.
local function refund(w, id, n, _, taken)
  value(w)
  local first = ask('ZRANGE', w.log, 0, 0)[1]
  if not first then return 0 end
  count_of(first, w)
  local entry = pack(w.packing, id, taken)
  local at = ask('ZSCORE', w.log, entry)
  if not at then return 0 end
  call('ZREM', w.log, entry)
  if n < taken then call('ZADD', w.log, at, pack(w.packing, id, taken - n)) end
  credit(w, n)
  return n
end

-- grant takes n permits out of the youngest entries, of MOST at most, and returns
-- how many there still are to take out. What is left of an entry is no longer given
-- back by its id.
local function grant(w, n)
  value(w)
  local part, out, some = ask('ZRANGE', w.log, -MOST, -1, 'WITHSCORES'), {}, 0
  local rest, i = n, #part - 1
  while i > 0 and rest > 0 do
    local had = count_of(part[i], w)
    some = math.min(rest, had)
    if some > 0 then out[#out + 1], rest = { part[i], part[i + 1], had - some }, rest - some end
    i = i - 2
  end
  for _, o in ipairs(out) do
    if o[3] > 0 then call('ZADD', w.log, o[2], sub(o[1], 1, -5) .. little(o[3], 4)) end
    call('ZREM', w.log, o[1])
  end
  credit(w, n - rest)
  return i <= 0 and #part == 2 * MOST and rest or 0
end

-- report counts grants that were made elsewhere, whatever is left.
local function report(w, list)
  open(w, 0)
  keep(w)
  for _, g in ipairs(list) do
    if enter(w, int(g.at), g.id, g.n) == 1 then w.left = w.left - g.n end
  end
  if w.is_new then configure(w) end
  if not w.counting then call('SET', w.state, int(w.left), 'KEEPTTL') end
  expire(w)
end
