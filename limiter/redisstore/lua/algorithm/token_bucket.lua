-- A token bucket, or a limit of concurrent permits, is three keys:
--   value    string  permits left: rate - sum of the permits in `permits`
--   permits  zset    what was taken: score = time in ms, member = ID and count, as in
--                    general/bucket_read.lua
--   base     string  the cached sum, "rate:oldest:counted": value was counted for this rate, at the time
--                    `counted`, and nothing comes back before oldest + length. Only with more
--                    entries than are quickly read each time; never needed for a right answer.
--                    Or "ban:until".
-- Value and permits live until the last permit has come back, so without both nothing has to be
-- read. Times are read one at a time: Redis writes them as text, which costs more than the
-- permits of ten entries. A log of more than MOST_ENTRIES entries is general's.
local CLAIM_SIZE, MOST_ENTRIES = 6, 12
local entries -- false of a new window

local function open()
  if value then
    local sum = 0
    set_old()
    entries = redis.pcall('ZRANGEBYSCORE', log, '(' .. old, now)
    fast = not entries.err
    for i = 1, fast and #entries or 0 do
      local a, b, c, d = byte(entries[i], -4, -1)
      if not d or b + c + d > 0 then -- 256 permits or more, or of others
        fast = false
        break
      end
      sum = sum + a
    end
    left = rate - sum
    trim = fast and call('ZCARD', log) > #entries -- something has expired, or was taken before the clock was set back
    if trim then fast = call('ZCOUNT', log, '(' .. now, '+inf') == 0 end
  else -- a key of another type looks like none in an MGET
    fast, entries, left, trim = call('EXISTS', key, log) == 0, false, rate, false
  end
end

local function take()
  fast, left = not entries or #entries < MOST_ENTRIES, left - cost
  if claim == id + 8 then
    state = sub(requests, id - 1, claim + 3)
  else
    state = sub(requests, id - 1, id + 7) .. sub(requests, claim, claim + 3)
  end
end

-- wait: until as many permits as are short have come back; those of now come last.
local function wait()
  local short = cost - left
  later = length
  for i = 1, entries and #entries or 0 do
    short = short - byte(entries[i], -4)
    if short <= 0 then
      later = tonumber(call('ZSCORE', log, entries[i])) + length - NOW
      break
    end
  end
end

local function write()
  call('ZADD', log, now, state)
  if trim then
    set_old()
    call('ZREMRANGEBYSCORE', log, '-inf', old)
  end
  call('PEXPIRE', log, ttl)
  call('SET', key, int(left), 'PX', ttl)
end
