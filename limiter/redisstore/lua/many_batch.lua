-- The packed strings of a call, which are read before all decisions and written after them. So a key that many requests
-- ask for is read and written once.
local CLAIM_SIZE, MANY = 6, char(255)
local single_limit = #rates == 1 and #windows == 3 * #KEYS -- the i-th window is of the one limit, in the i-th key
local strings = mget(KEYS)
local unwritten = {} -- by the number of a key, how long it lives
-- A string that is to be written: the number of its key, its text, how long it lives.
local key_number, text, life

-- write_string writes text. The first time Redis must not have a key of another type there,
-- which looks like none in an MGET.
local function write_string()
  if strings[key_number] then
    unwritten[key_number] = life
  else
    fast = call('SET', KEYS[key_number], text, 'PX', life, 'NX')
  end
  strings[key_number] = text
end

local function write_all()
  for i, text_life in pairs(unwritten) do
    call('SET', KEYS[i], strings[i], 'PX', text_life)
    unwritten[i] = nil
  end
end
