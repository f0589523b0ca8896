-- straight is take for requests of one claim each, every one on a window of its own: the
-- usual way straight on, without what only others need. How an algorithm decides stands
-- in its take_ALGORITHM.lua: from what `state` is, or is not, by the limit's rate, length,
-- most, ttl, tag and step, to `usual`, allowed, left and wait; nothing is written unless it
-- is usual.
-- KEYS   state of each window
-- ARGV   limits and windows, see limits.lua and list_windows; then all requests in one string, see
--        decide
-- reply  as that of take
-- The whole script is one step for everybody else.
local struct_pack, struct_unpack = struct.pack, struct.unpack
local got, reply, r, from, one = call('MGET', unpack(KEYS)), { NOW }, 1, 1, nil
--@ begin
for i = 1, #KEYS do
  local l, state, key = byte(of, 3 * i - 2), got[i], KEYS[i]
  local rate, length, most, ttl, tag, step = rates[l], lengths[l], mosts[l], ttls[l], tags[l], steps[l]
  local cost, c, d, e = byte(requests, from + 10, from + 13)
  if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
  local usual, allowed, left, wait = false, 0, 0, 0
  --@ decide
  if usual then
    reply[r + 1], reply[r + 2], reply[r + 3] = allowed, left < 0 and 0 or left, wait
    r = r + 3
  else
    if not one then
      --@ general
      one = general()
    end
    r = one(l, i, i, from, reply, r, state)
  end
  from = from + 16
end
return reply
