-- How many.lua decides a request of one claim, whose window is alone in its packed string or new.
-- Of a request for which fast is false nothing is written.

-- Requests for one key often follow each other. Then the algorithm still knows the window of the
-- request before, the one of the number `held`; its state is saved when another is asked for.
local held, unsaved = 0, false
local function release()
  held = 0
  if unsaved then
    save()
    text, life, unsaved = state, ttls[limit], false
    write_string()
  end
end

-- decide_one decides a request of one claim.
local function decide_one()
  local c, d, e, window_number, y
  cost, c, d, e, window_number, y = byte(requests, from + 10, from + 15)
  if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
  window_number = window_number + y * 256
  allowed, later = 0, 0
  if window_number ~= held then
    if unsaved then
      release()
    end
    key_number = window_number
    if not single_limit then
      limit, c, d = byte(windows, 3 * window_number - 2, 3 * window_number)
      if limit ~= limit_in_use then
        use_limit()
      end
      key_number = c + d * 256
    end
    packed, held = strings[key_number], window_number
    if packed then
      first, last = #field + 1, #packed
      fast = sub(packed, 1, #field) == field
    end
    if fast then
      open()
    end
  end
  decide_claim()
  if fast and allowed == 1 then
    if strings[key_number] then
      unsaved = true
    else -- the first time something of another type may be there
      save()
      text, life = state, ttls[limit]
      write_string()
    end
  end
  if fast then reply[replied + 1], reply[replied + 2], reply[replied + 3] = allowed, left < 0 and 0 or left, later end
end
