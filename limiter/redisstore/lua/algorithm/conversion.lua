-- A conversion: what is taken and not returned, and the subjects that were confirmed, in buckets of
-- 1/60 of the length. What was taken counts until its whole bucket has left the window, and a
-- subject until its bucket begins to leave. limiter's conversion.go and conversion_memory.go are the same.
--   state  '<BI6I6I4I4': form 1, the numbers of the first and last bucket, and what counts of all:
--          permits and subjects; then, with a memory, the days, '<BI4I4': 127 and how many follow with
--          this one, the number of the day since 1970, its subjects, more than on any later day; then
--          each bucket, '<BI4I4': its number less that of the one before, permits, subjects
--   steps  the percentage (1 byte); the days of memory (1 byte) if there is one
local DAY = 86400000
local width, front, back, taken, confirmed, body, faded, fresh, today
local days, remembered, at_time = '', 0, 0 -- the days that count, and what the best of them does in a window at at_time

-- find_left sets left: what may be taken beyond what is taken, at most `rate`.
local function find_left()
  local percent, subjects = byte(steps), remembered > confirmed and remembered or confirmed
  left = rate + floor(subjects * (100 - percent) / percent) - taken
  if left > rate then left = rate end
end

-- find_remembered sets remembered.
local function find_remembered()
  remembered = 0
  local oldest = floor(at_time / DAY) - byte(steps, 2)
  for i = 1, #days, 9 do
    local _, number, subjects = unpack_at('<BI4I4', days, i)
    if number > oldest then
      remembered = floor(subjects * (length < DAY and length or DAY) / (2 * DAY))
      break
    end
  end
end

-- read_days leaves out the days that no longer count, and passes by them in packed. Later ones than that of now
-- are not usual.
local function read_days()
  local i, memory, now_day = body, byte(steps, 2), floor(NOW / DAY)
  body = body + 9 * (byte(packed, body) - 127)
  usual = usual and body <= last + 1
  if memory and body <= last + 1 then
    local _, newest = unpack_at('<BI4', packed, body - 9)
    while i < body do
      local _, number = unpack_at('<BI4', packed, i)
      if number > now_day - memory then break end
      i = i + 9
    end
    days, at_time, usual = sub(packed, i, body - 1), NOW, usual and newest <= now_day
    find_remembered()
    local ends = (newest + memory) * DAY
    if days ~= '' and ends > NOW + length + width then longer = string.format('%.0f', ends - NOW + 1000) end
  end
end

-- drop_buckets leaves out what has left the window. Of the first bucket the subjects may have
-- left, but not yet the permits: it is faded.
local function drop_buckets()
  while body <= last do
    local _, n, c = unpack_at('<BI4I4', packed, body)
    faded = front * width + length <= NOW
    if faded then confirmed = confirmed - c end
    if front * width + width - 1 + length > NOW then break end
    taken, body = taken - n, body + 9
    if body <= last then front = front + byte(packed, body) end
  end
end

local function open()
  width = floor((length + 59) / 60)
  today = floor(NOW / width)
  front, back, taken, confirmed, body, faded, fresh = today, today, 0, 0, first or 1, false, 0
  days, remembered, longer = '', 0, nil
  if packed then
    usual = last - first >= 20
    if usual then
      local form
      form, front, back, taken, confirmed, body = unpack_at('<BI6I6I4I4', packed, first)
      local is_whole = form == 1 and (last - body) % 9 == 8
      usual = is_whole and back <= today
      if is_whole and body <= last and byte(packed, body) > 127 then
        read_days()
      end
      if usual then
        drop_buckets()
      end
    end
  end
  find_left()
end

local function take()
  taken, fresh = taken + cost, fresh + cost
  find_left()
end

-- buckets is the text of all buckets, of which that of now has `fresh` permits and `more` subjects more.
local function buckets(more)
  local out = packed and sub(packed, body, last) or ''
  if out ~= '' and faded then
    local delta, n = unpack_at('<BI4I4', out, 1)
    out = pack('<BI4I4', delta, n, 0) .. sub(out, 10)
  end
  if fresh + more == 0 then return out end
  if out == '' then
    front, back = today, today
    return pack('<BI4I4', 0, fresh, more)
  end
  if back < today then
    out = out .. pack('<BI4I4', today - back, fresh, more)
    back = today
    return out
  end
  local delta, n, c = unpack_at('<BI4I4', out, #out - 8)
  return sub(out, 1, -10) .. pack('<BI4I4', delta, n + fresh, c + more)
end

local function state_of(out) return pack('<BI6I6I4I4', 1, front, back, taken, confirmed) .. days .. out end

local function save()
  local out = buckets(0)
  state = tag .. state_of(out)
end

-- wait: until enough permits have left the window, less what subjects have taken along.
local function wait()
  local percent, number, n, c, remembered_now = byte(steps), front, taken, confirmed, remembered
  later = length + width
  for i = body, packed and last or 0, 9 do
    local delta, permits, subjects = unpack_at('<BI4I4', packed, i)
    if i > body then number = number + delta end
    if i > body or not faded then c = c - subjects end
    n = n - permits
    at_time = number * width + width - 1 + length
    if number == today then n = n - fresh end
    if days ~= '' then
      find_remembered()
    end
    if n + cost <= rate + floor((remembered > c and remembered or c) * (100 - percent) / percent) then
      later = at_time - NOW
      break
    end
  end
  remembered = remembered_now
  if later == length + width and fresh > 0 then later = today * width + width - 1 + length - NOW end
end
