-- A limiter in the form of Redisson 3.13.3 and later:
--   value    rate - sum of the permits in the entries; absent when nothing is out
--   permits  zset of entries: score = time in ms, member = id and count
-- value is trusted, and only what has expired is read; with few entries all are
-- read, which heals a value that is too low. One that is too high was raised by
-- Java's release, and stands until it would be raised further.

-- SMALL entries are read each time, and SOME before a refusal; PIECE are read at
-- a time, and MOST at all, in one call.
local SMALL, SOME, PIECE, MOST = 16, 128, 128, 512

-- count reads all entries.
local function count(w)
  w.left, w.surplus, w.expired = w.rate - read_all(w, w.length), 0, false
  if w.value and w.value <= w.rate and w.value > w.left then
    w.left, w.surplus = w.value, w.value - w.left -- which must expire before anything comes back
  end
end

-- expired reads entries that have expired, until so many permits are left, or
-- there are no more. What comes back never makes more than the entries leave: each
-- of them holds one permit at least.
local function expired(w, need)
  local sum, gone = 0, 0
  repeat
    local part = ask('ZRANGEBYSCORE', w.log, '-inf', int(NOW - w.length), 'LIMIT', gone, PIECE)
    for i = 1, #part do sum = sum + count_of(part[i], w) end
    gone = gone + #part
    w.expired = #part == PIECE -- and perhaps more
  until not w.expired or gone >= MOST or w.left + sum >= need
  w.gone = gone
  local left, room = w.left + sum, w.rate - (w.size - gone)
  if left <= room then
    w.left = left
  elseif w.size <= MOST then
    count(w)
  else
    w.left = math.max(w.left, room)
  end
end

-- merge makes one entry of the oldest that lie in one part of the length, see entries.lua. Without a value
-- the entries must be counted, and of many that takes as many calls as there are
-- MOST; until then all are refused.
local function merge(w)
  w.left, w.value, w.counting, w.merged = 0, nil, true, {}
  local part, all, merged = ask('ZRANGE', w.log, 0, MOST - 1, 'WITHSCORES'), {}, w.merged
  for i = 1, #part, 2 do
    local at, n = math.min(NOW, tonumber(part[i + 1])), count_of(part[i], w)
    if at > NOW - w.length then all[#all + 1] = { at = at, n = n, id = false } end
  end
  for _, e in ipairs(merge_entries(w, all, w.length)) do
    local member = pack(w.packing, little(e.at, 8), math.min(e.n, MOST_COUNT))
    merged[#merged + 1], merged[#merged + 2] = int(e.at), member
  end
end

-- open learns how many permits are left, if so many are needed.
local function open(w, need)
  w.value, w.size, w.gone = value(w), ask('ZCARD', w.log), 0
  w.left = w.value
  local first, last = ask('ZRANGE', w.log, 0, 0, 'WITHSCORES'), ask('ZRANGE', w.log, -4, -1, 'WITHSCORES')
  if w.size > 0 then count_of(first[1], w) end
  for i = 1, #last, 2 do count_of(last[i], w) end
  local latest = tonumber(last[#last])
  if w.size == 0 or latest <= NOW - w.length then
    w.left, w.gone, w.at, w.n, w.complete = w.rate, w.size, {}, {}, true
    return
  end
  if w.size <= SMALL or w.size <= MOST and (not w.value or w.value > w.rate) then return count(w) end
  if not w.value then return merge(w) end
  if w.value > w.rate then w.left = math.min(w.value, w.rate - w.size) end
  if tonumber(first[2]) <= NOW - w.length then expired(w, need) end
  if w.left < need and w.size - w.gone <= SOME and not w.complete then return count(w) end
  if latest > NOW and not w.complete then
    local ahead = ask('ZRANGEBYSCORE', w.log, '(' .. now_text, '+inf', 'LIMIT', 0, MOST)
    for i = 1, #ahead do add_future(w, ahead[i]) end
  end
end
