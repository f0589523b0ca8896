--@ general
-- The entries of sliding logs and cooldowns, see algorithm/log.lua, beside the usual path.
local HEAD, HEAD_OF_ONE, LOGGED = 19, 17, true

local function packed_state()
  return pack('<BI6I6I4I2', 1, before, newest, taken, count) .. (packed and sub(packed, first, last) or '')
end

local function check_form()
  local form = byte(packed)
  if not (form == 1 and #packed >= HEAD or form == 3 and #packed == HEAD_OF_ONE) then error('a state of another form') end
end

-- list_entries makes a table of each entry that counts, oldest first.
local function list_entries()
  local all, at, i = {}, before, first
  while i <= last do
    local after, n, next, its_id = entry(packed, i)
    at, i = at + after, next
    all[#all + 1] = { at = at, n = n, id = its_id and sub(packed, its_id, its_id + 7) }
  end
  return all
end

-- put_entries makes them the entries that count.
local function put_entries(all)
  local texts, at = {}, all[1] and all[1].at or NOW
  before, count, taken = at, #all, 0
  for i, e in ipairs(all) do
    texts[i] = entry_text(e.at - at, e.n, e.id)
    at, taken = e.at, taken + e.n
  end
  packed, newest = table.concat(texts), at
  first, last = 1, #packed
end

-- insert_entry puts e where its time belongs.
local function insert_entry(all, e)
  local i = #all + 1
  while i > 1 and all[i - 1].at > e.at do i = i - 1 end
  table.insert(all, i, e)
end

local function settle()
  local all = list_entries()
  for _, e in ipairs(all) do e.at = math.min(e.at, NOW) end
  put_entries(all)
end

--@ change
-- insert_grants puts each grant there once.
local function insert_grants(all, grants)
  local known = {}
  for _, e in ipairs(all) do
    if e.id then known[e.id] = true end
  end
  for _, g in ipairs(grants) do
    if not known[g.id] then insert_entry(all, { at = g.at, n = g.n, id = g.id }) end
    known[g.id] = true
  end
end
