-- A note is a string that holds what was taken under one subject, oldest first, 44 bytes each:
-- the ID (8), when it was taken in ms (6), the permits (4), the key (16), and the length in ms
-- (6) and rate (4) of the limit. Of too much the oldest is forgotten, which stays taken.
local NOTED, MOST_NOTED = 44, 64 * 44

-- shortened leaves `over` bytes out of a note: the oldest of what was taken, but no confirmations of confirmed
-- subjects, which have taken nothing.
local function shortened(text, over)
  local kept = {}
  for i = 1, #text, NOTED do
    if over > 0 and number(text, i + 14, 4) > 0 then
      over = over - NOTED
    else
      kept[#kept + 1] = sub(text, i, i + NOTED - 1)
    end
  end
  return table.concat(kept)
end

-- note adds what was taken under id at the time at; of each permit noted has what follows the
-- time. The note lives for ttl ms at least. Whatever is wrong with it, the permits are taken.
local function note(key, ttl, id, at, noted)
  local texts, head = {}, id .. little(at, 6)
  for i = 1, #noted, 30 do texts[#texts + 1] = head .. sub(noted, i, i + 29) end
  local size = redis.pcall('APPEND', key, table.concat(texts))
  if type(size) ~= 'number' then return end
  if size > MOST_NOTED then call('SET', key, shortened(call('GET', key), size - MOST_NOTED), 'KEEPTTL') end
  if call('PTTL', key) < ttl then call('PEXPIRE', key, int(ttl)) end
end

-- note_granted notes what granted requests took. Of each, ARGV[5] has the place of its result in
-- the reply (2 bytes), the number of the note among KEYS (2), how long it lives in ms (6), the
-- ID, how many permits are noted (1), and those.
local function note_granted(reply)
  local text, at = ARGV[5] or '', 1
  while at <= #text do
    local noted = 30 * byte(text, at + 18)
    if reply[number(text, at, 2)] == 1 then
      local key, ttl = KEYS[number(text, at + 2, 2)], number(text, at + 4, 6)
      note(key, ttl, sub(text, at + 10, at + 17), NOW, sub(text, at + 19, at + 18 + noted))
    end
    at = at + 19 + noted
  end
end

-- A confirmation holds for the length of its window: until then its subject counts as confirmed. A window that was
-- not written since counts the subject again if the clock is set back, so the confirmation stays: for a length
-- more, at most SPARE ms, and for two if it is seen then. In place of an ID it has zeros.
local SPARE = 3600000

-- refund_note takes parts out of the note `key`, all or those of the ID `only`. It hands each to `give`, which says
-- whether something was given back, and then to `confirm`, with when its subject was confirmed before, 0 for never.
-- A part that took nothing is a confirmation. It returns of how many decisions something was given back. What is
-- left in the note of more than `most` parts, to the end of a decision, is for another call: then it also returns
-- true.
local function refund_note(key, only, most, give, confirm)
  local text, known, confirmed, kept, decisions, lives = redis.pcall('GET', key), {}, {}, {}, 0, 1
  if type(text) ~= 'string' then return 0 end
  local function keep(part, ends)
    kept[#kept + 1], lives = part, math.max(lives, ends - NOW)
  end
  local given, over, confirmations, is_more = {}, {}, 0, false
  for i = 1, #text - NOTED + 1, NOTED do
    local part = sub(text, i, i + NOTED - 1)
    local name, length = sub(part, 19, 40), number(part, 35, 6)
    local ends = number(part, 9, 6) + length
    if number(part, 15, 4) == 0 then
      if ends > NOW then
        confirmed[name], confirmations = part, confirmations + 1
      elseif ends + 2 * length > NOW then
        over[name] = part
      end
    elseif only and sub(part, 1, 8) ~= only or #given >= most and sub(part, 1, 8) ~= sub(given[#given], 1, 8) then
      keep(part, ends + length) -- longer than any permit counts
      is_more = is_more or not only
    else
      given[#given + 1] = part
    end
  end
  for i = 1, #given do
    local part = given[i]
    local id, name = sub(part, 1, 8), sub(part, 19, 40)
    if give(part, id) then
      if not known[id] then decisions = decisions + 1 end
      known[id], over[name] = true, nil
      local was = confirmed[name]
      local has_room = was or confirmations < MOST_NOTED / NOTED
      -- what cannot be written is not confirmed
      if confirm and not only and has_room and confirm(part, was and number(was, 9, 6) or 0) then
        confirmed[name] = little(0, 8) .. little(NOW, 6) .. little(0, 4) .. sub(part, 19)
        if not was then confirmations = confirmations + 1 end
      end
    end
  end
  for _, part in pairs(confirmed) do
    local length = number(part, 35, 6)
    keep(part, number(part, 9, 6) + length + math.min(length, SPARE))
  end
  for _, part in pairs(over) do keep(part, number(part, 9, 6) + 3 * number(part, 35, 6)) end
  if #kept == 0 then call('DEL', key) else call('SET', key, table.concat(kept), 'PX', int(lives)) end
  return decisions, is_more
end
