-- What token buckets and Redisson's limiters do alike with the entries in their sorted sets. `ask` reads a key, and
-- count_of the permits of a member; both may refuse. A window has
--   at, n     when what was read was taken, and how many permits, oldest first
--   gone      how many entries have expired
--   read      up to which entry was read; complete: all were
--   future    scores and members to write of entries from the time to come: a clock was ahead, or was set back. They
--             were taken now at the latest
local function add_future(w, member)
  w.future = w.future or {}
  w.future[#w.future + 1], w.future[#w.future + 2] = now_text, member
end

-- read_all reads all entries, and returns their permits, and how many have not expired.
local function read_all(w, length)
  local all, old, sum, gone, ats, ns = ask('ZRANGE', w.log, 0, -1, 'WITHSCORES'), NOW - length, 0, 0, {}, {}
  w.future = nil
  for i = 1, #all, 2 do
    local at, n = tonumber(all[i + 1]), count_of(all[i], w)
    if at <= old then
      gone = gone + 1
    else
      if at > NOW then
        at = NOW
        add_future(w, all[i])
      end
      if n > 0 then ats[#ats + 1], ns[#ns + 1], sum = at, n, sum + n end
    end
  end
  w.at, w.n, w.gone, w.complete = ats, ns, gone, true
  return sum, #all / 2 - gone
end

-- comes_back is when the last was taken of the `short` permits that come back first. Without so many in `most` entries
-- it is nil, and how many are short then.
local function comes_back(w, short, most)
  w.at, w.n, w.read = w.at or {}, w.n or {}, w.read or w.gone
  local i = 1
  while true do
    while i <= #w.at do
      short = short - w.n[i]
      if short <= 0 then return w.at[i] end
      i = i + 1
    end
    local size = w.read - w.gone
    if w.complete or size >= most then return nil, short end
    size = math.max(8, size)
    local part = ask('ZRANGE', w.log, w.read, w.read + size - 1, 'WITHSCORES')
    for k = 1, #part, 2 do
      local n = count_of(part[k], w)
      if n > 0 then w.at[#w.at + 1], w.n[#w.n + 1] = tonumber(part[k + 1]), n end
    end
    w.read, w.complete = w.read + #part / 2, #part < 2 * size
  end
end
