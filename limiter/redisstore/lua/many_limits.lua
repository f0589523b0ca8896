-- What many.lua knows of a call: its limits, the reply, and the request that is decided: where it begins, how many claims
-- it has, and whether all are granted.
local rates, lengths, mosts, ttls, fields, all_steps = {}, {}, {}, {}, {}, {}
while limit_at <= #limits_text do
  read_limit()
  local n = #rates + 1
  rates[n], lengths[n], mosts[n], ttls[n], fields[n], all_steps[n] = rate, length, most, ttl, field, steps
end

-- use_limit makes the limit of the number `limit` the one in use.
local windows, limit_in_use = ARGV[2], #rates
limit = #rates
local function use_limit()
  rate, length, most, ttl, limit_in_use = rates[limit], lengths[limit], mosts[limit], ttls[limit], limit
  field, steps = fields[limit], all_steps[limit]
end

local reply, replied = { NOW }, 1
local from, claims, allowed = 1, 1, 1
