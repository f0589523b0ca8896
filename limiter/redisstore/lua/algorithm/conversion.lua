-- A conversion: what is taken and not returned, and the subjects that were confirmed, in buckets of
-- 1/60 of the length. What was taken counts until its whole bucket has left the window, and a
-- subject until its bucket begins to leave. limiter's conversion.go is the same.
--   state  '<BI6I6I4I4': form 1, the numbers of the first and last bucket, and what counts of all:
--          permits and subjects; then each bucket, '<BI4I4': its number less that of the one before,
--          permits, subjects
--   steps  the percentage (1 byte)
local width, front, back, taken, confirmed, body, front_expired, new_permits, today

-- find_left sets left: what may be taken beyond what is taken, at most `rate`.
local function find_left()
  local percent = byte(steps)
  left = rate + floor(confirmed * (100 - percent) / percent) - taken
  if left > rate then left = rate end
end

-- drop_buckets leaves out what has left the window. Of the first bucket the subjects may have
-- left, but not yet the permits: front_expired is true then.
local function drop_buckets()
  while body <= last do
    local _, n, c = unpack_at('<BI4I4', packed, body)
    front_expired = front * width + length <= NOW
    if front_expired then confirmed = confirmed - c end
    if front * width + width - 1 + length > NOW then break end
    taken, body = taken - n, body + 9
    if body <= last then front = front + byte(packed, body) end
  end
end

local function open()
  width = floor((length + 59) / 60)
  today = floor(NOW / width)
  front, back, taken, confirmed, body, front_expired, new_permits = today, today, 0, 0, first or 1, false, 0
  fast = not packed or last - first >= 20
  if packed and fast then
    local form
    form, front, back, taken, confirmed, body = unpack_at('<BI6I6I4I4', packed, first)
    fast = form == 1 and (last - body) % 9 == 8 and back <= today
    if fast then
      drop_buckets()
    end
  end
  find_left()
end

local function take()
  taken, new_permits = taken + cost, new_permits + cost
  find_left()
end

-- complete_state is the state, of which the bucket of now has `new_permits` permits more.
local function complete_state()
  local out = packed and sub(packed, body, last) or ''
  if out ~= '' and front_expired then
    local delta, n = unpack_at('<BI4I4', out, 1)
    out = pack('<BI4I4', delta, n, 0) .. sub(out, 10)
  end
  if new_permits > 0 and out ~= '' and back == today then
    local delta, n, c = unpack_at('<BI4I4', out, #out - 8)
    out = sub(out, 1, -10) .. pack('<BI4I4', delta, n + new_permits, c)
  elseif new_permits > 0 then
    if out == '' then front, back = today, today end
    out, back = out .. pack('<BI4I4', today - back, new_permits, 0), today
  end
  return pack('<BI6I6I4I4', 1, front, back, taken, confirmed) .. out
end

local function save() state = field .. complete_state() end

-- wait: until enough permits have left the window, less what subjects have taken along.
local function wait()
  local percent, bucket, n, c = byte(steps), front, taken, confirmed
  later = length + width
  for i = body, packed and last or 0, 9 do
    local delta, permits, subjects = unpack_at('<BI4I4', packed, i)
    if i > body then bucket = bucket + delta end
    if i > body or not front_expired then c = c - subjects end
    n = n - permits
    if bucket == today then n = n - new_permits end
    if n + cost <= rate + floor(c * (100 - percent) / percent) then
      later = bucket * width + width - 1 + length - NOW
      break
    end
  end
  if later == length + width and new_permits > 0 then later = today * width + width - 1 + length - NOW end
end
