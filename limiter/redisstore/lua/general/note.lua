-- A note is a string that holds what was taken under one subject, oldest first, 44 bytes each:
-- the ID (8), when it was taken in ms (6), the permits (4), the key (16), and the length in ms
-- (6) and rate (4) of the limit. Of too much the oldest is forgotten, which stays taken.
local NOTED, MOST_NOTED = 44, 64 * 44

-- note adds what was taken under id at the time at; of each permit noted has what follows the
-- time. The note lives for ttl ms at least. Whatever is wrong with it, the permits are taken.
local function note(key, ttl, id, at, noted)
  local texts, head = {}, id .. little(at, 6)
  for i = 1, #noted, 30 do texts[#texts + 1] = head .. sub(noted, i, i + 29) end
  local size = redis.pcall('APPEND', key, table.concat(texts))
  if type(size) ~= 'number' then return end
  if size > MOST_NOTED then call('SET', key, call('GETRANGE', key, -MOST_NOTED, -1), 'KEEPTTL') end
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
      note(KEYS[number(text, at + 2, 2)], number(text, at + 4, 6), sub(text, at + 10, at + 17), NOW, sub(text, at + 19, at + 18 + noted))
    end
    at = at + 19 + noted
  end
end
