-- The entries of a log as tables, see entries.lua, for whatever changes them.
local HEAD, HEAD_OF_ONE, LOGGED = 19, 17, true

local function check_form()
  local form = byte(packed)
  local known = form == 1 and #packed >= HEAD or form == 3 and #packed == HEAD_OF_ONE
  if not known then error('a state of another form') end
end

-- list_entries makes a table of each entry that counts, oldest first.
local function list_entries()
  local all, at, i = {}, before, first
  while i <= last do
    local after, n, next, id_at = entry(packed, i)
    at, i = at + after, next
    all[#all + 1] = { at = at, n = n, id = id_at and sub(packed, id_at, id_at + 7) }
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

local function begin_now()
  local all = list_entries()
  for _, e in ipairs(all) do e.at = math.min(e.at, NOW) end
  put_entries(all)
end

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
