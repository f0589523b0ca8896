-- The buckets of a conversion, see algorithm/conversion.lua, beside the fast path.
local HEAD, LOGGED = 21, true

local function check_form()
  if byte(packed) ~= 1 or #packed < HEAD or (#packed - HEAD) % 9 ~= 0 then error('a state of another form') end
end

-- list_buckets makes a table of all buckets in packed, oldest first.
local function list_buckets()
  local all, number, at, _ = {}, 0, 0, nil
  _, number, _, _, _, at = unpack_at('<BI6I6I4I4', packed, 1)
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
  front, taken, confirmed, front_expired, new_permits = before, 0, 0, false, 0
  for i, b in ipairs(all) do
    texts[i] = pack('<BI4I4', b.number - before, b.n, b.c)
    before, taken, confirmed = b.number, taken + b.n, confirmed + b.c
  end
  back, packed = before, table.concat(texts)
  first, last, body = 1, #packed, 1
end

-- add adds to the bucket of a number.
local function add(all, number, n, c)
  local i = #all + 1
  while i > 1 and all[i - 1].number > number do i = i - 1 end
  if i > 1 and all[i - 1].number == number then
    all[i - 1].n, all[i - 1].c = all[i - 1].n + n, all[i - 1].c + c
  else
    table.insert(all, i, { number = number, n = n, c = c })
  end
end

-- begin_now moves buckets after the clock was set back, as settleConversion of limiter's conversion.go does.
local function begin_now(w)
  local kept = {}
  -- also of what has left: a bucket of the same time may come
  w.refund_horizon = math.max(w.refund_horizon, back * width + width - 1)
  for _, b in ipairs(list_buckets()) do
    local is_later = b.number > today
    if is_later then w.refund_horizon = math.max(w.refund_horizon, b.number * width + width - 1) end
    add(kept, is_later and today or b.number, b.n, is_later and 0 or b.c)
  end
  put_buckets(kept)
end

-- live lists the buckets that count, after open.
local function live()
  packed = complete_state()
  return list_buckets()
end

-- refund takes n permits out of the bucket of `at`. The caller knows that they were not given back.
local function refund(w, _, n, at)
  if not w.raw or at <= w.refund_horizon then return 0 end
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
  grant_entries(all, n)
  put_buckets(all)
  w.refund_horizon = NOW
end

local function enter(grants)
  local all = packed and live() or {}
  for _, g in ipairs(grants) do add(all, floor(g.at / width), g.n, 0) end
  put_buckets(all)
end

-- confirm counts a subject from now on; one that was confirmed `at`, less than a length ago, counts no more from
-- then on.
local function confirm(at)
  local all = live()
  for _, b in ipairs(all) do
    if b.number == floor(at / width) then b.c = math.max(0, b.c - 1) end
  end
  add(all, today, 0, 1)
  put_buckets(all)
end

-- current is what was taken, and, after its end, what may be taken, and the subjects that were confirmed.
local function current()
  local percent = byte(steps)
  return taken, nil, rate + floor(confirmed * (100 - percent) / percent), confirmed
end
