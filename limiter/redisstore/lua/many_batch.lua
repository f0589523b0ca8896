-- What many.lua knows of a call: its limits, the reply, and the packed strings, which are read
-- before all decisions and written after them. So a key that many requests ask for is read and
-- written once.
local MANY = char(255)
local rates, lengths, mosts, ttls, fields, all_steps, lives = {}, {}, {}, {}, {}, {}, {}
while limit_at <= #limits_text do
  read_limit()
  local n = #rates + 1
  rates[n], lengths[n], mosts[n], fields[n], all_steps[n] = rate, length, most, field, steps
  ttls[n], lives[n] = ttl, tonumber(ttl)
end

-- use_limit makes the limit of the number `limit` the one in use; nobody asks for its ttl.
local windows, limit_in_use = ARGV[2], #rates
limit = #rates
local function use_limit()
  rate, length, most, limit_in_use = rates[limit], lengths[limit], mosts[limit], limit
  field, steps = fields[limit], all_steps[limit]
end

local single_limit = #rates == 1 and #windows == 3 * #KEYS -- the i-th window is of the one limit, in the i-th key
local strings, reply, replied = mget(KEYS), { NOW }, 1
local unwritten = {} -- by the number of a key, how long it lives
-- The request: where it begins, how many claims it has, whether all are granted. A string that
-- is to be written: the number of its key, its text, how long it lives.
local from, claims, allowed = 1, 1, 1
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
