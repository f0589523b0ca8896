-- The buckets of a conversion, see algorithm/conversion.lua, beside the usual path.
local HEAD, LOGGED = 21, true
local MOST_SUBJECTS = 67108863 -- of a day, as in limiter's conversion_memory.go
local function packed_state() return state_of(buckets(0)) end

local function check_form()
  if byte(packed) ~= 1 or #packed < HEAD or (#packed - HEAD) % 9 ~= 0 then error('a state of another form') end
end

-- list_buckets makes a table of all buckets in packed, oldest first.
local function list_buckets()
  local all, number, at, _ = {}, 0, 0, nil
  _, number, _, _, _, at = unpack_at('<BI6I6I4I4', packed, 1)
  if at <= #packed and byte(packed, at) > 127 then at = at + 9 * (byte(packed, at) - 127) end
  for i = at, #packed, 9 do
    local delta, n, c = unpack_at('<BI4I4', packed, i)
    if i > at then number = number + delta end
    all[#all + 1] = { number = number, n = n, c = c }
  end
  return all
end

-- put_buckets makes all, in their order, those that count.
local function put_buckets(all)
  local texts, before = {}, all[1] and all[1].number or today
  front, taken, confirmed, faded, fresh = before, 0, 0, false, 0
  for i, b in ipairs(all) do
    texts[i] = pack('<BI4I4', b.number - before, b.n, b.c)
    before, taken, confirmed = b.number, taken + b.n, confirmed + b.c
  end
  back, packed = before, table.concat(texts)
  first, last, body = 1, #packed, 1
end

-- keep_days makes days those up to `newest` and, if that has `subjects`, it. Those with no more than it are forgotten.
local function keep_days(newest, subjects)
  local numbers, counts, texts = {}, {}, {}
  for i = 1, #days, 9 do
    local _, number, n = unpack_at('<BI4I4', days, i)
    if number < newest and n > subjects or number == newest and subjects == 0 then numbers[#numbers + 1], counts[#counts + 1] = number, n end
  end
  if subjects > 0 then numbers[#numbers + 1], counts[#counts + 1] = newest, subjects end
  for i = 1, #numbers do texts[i] = pack('<BI4I4', 128 + #numbers - i, numbers[i], counts[i]) end
  days = table.concat(texts)
end

-- settle moves buckets after the clock was set back, as settleConversion of limiter's conversion.go does.
local function settle(w)
  local all, kept = list_buckets(), {}
  w.floor = math.max(w.floor, back * width + width - 1) -- also of what has left: a bucket of the same time may come
  for _, b in ipairs(all) do
    if b.number > today then
      w.floor = math.max(w.floor, b.number * width + width - 1)
      b.number, b.c = today, 0
    end
    local before = kept[#kept]
    if before and before.number == b.number then
      before.n, before.c = before.n + b.n, before.c + b.c
    else
      kept[#kept + 1] = b
    end
  end
  put_buckets(kept)
  keep_days(floor(NOW / DAY), 0)
end

--@ change
-- live lists the buckets that count, after open.
local function live()
  packed = state_of(buckets(0))
  return list_buckets()
end

-- refund takes n permits out of the bucket of `at`. The caller knows that they were not given back.
local function refund(w, _, n, at)
  if not w.raw or at <= w.floor then return 0 end
  local all, given = live(), 0
  for _, b in ipairs(all) do
    if b.number == floor(at / width) then
      given = math.min(n, b.n)
      b.n = b.n - given
    end
  end
  put_buckets(all)
  return given
end

-- grant takes n permits out of the latest buckets; what was taken before is not given back any more.
local function grant(n, w)
  local all = live()
  for i = #all, 1, -1 do
    local some = math.min(n, all[i].n)
    all[i].n, n = all[i].n - some, n - some
  end
  put_buckets(all)
  w.floor = NOW
end

local function add(all, number, n, c)
  local i = #all + 1
  while i > 1 and all[i - 1].number > number do i = i - 1 end
  if i > 1 and all[i - 1].number == number then
    all[i - 1].n, all[i - 1].c = all[i - 1].n + n, all[i - 1].c + c
  else
    table.insert(all, i, { number = number, n = n, c = c })
  end
end

local function enter(grants)
  local all = packed and live() or {}
  for _, g in ipairs(grants) do add(all, floor(g.at / width), g.n, 0) end
  put_buckets(all)
end

-- confirm counts a subject from now on; one that was confirmed `at`, less than a length ago, counts no more from then on.
local function confirm(at, counts_day)
  local all = live()
  for _, b in ipairs(all) do
    if b.number == floor(at / width) then b.c = math.max(0, b.c - 1) end
  end
  add(all, today, 0, 1)
  put_buckets(all)
  local memory = byte(steps, 2)
  if not memory or not counts_day then return end
  local now_day, before = floor(NOW / DAY), 0
  if days ~= '' then
    local _, number, n = unpack_at('<BI4I4', days, #days - 8)
    if number == now_day then before = n end
  end
  keep_days(now_day, math.min(before + 1, MOST_SUBJECTS))
  longer = math.max((now_day + memory) * DAY - NOW, length + width) + SLACK
end

-- standing is what was taken, and, after its end, what may be taken, and the subjects that were confirmed and that
-- are remembered.
local function standing()
  local percent = byte(steps)
  return taken, nil, rate + floor(math.max(confirmed, remembered) * (100 - percent) / percent), confirmed, remembered
end
