-- straight is take for requests of one claim each, every one on a window of its own: the
-- usual way straight on, without what only others need. How windows are read stands in
-- keys_box.lua or keys_bucket.lua. How an algorithm decides stands in its
-- take_ALGORITHM.lua: from what `state` is, or is not, by the limit's rate, length, most,
-- ttl, tag and step, to `usual`, allowed, left and wait; nothing is written unless it is
-- usual.
-- KEYS   those of each window
-- ARGV   limits and windows, see limits.lua and list_windows; then all requests in one string, see
--        decide
-- reply  as that of take
-- The whole script is one step for everybody else.
local reply, r, from, one = { NOW }, 1, 1, nil
--@ read all
--@ begin
for i = 1, #of / 3 do
  --@ window
  local cost, c, d, e = byte(requests, from + 10, from + 13)
  --@ cost
  local usual, allowed, left, wait = false, 0, 0, 0
  --@ decide
  --@ keep times
  if usual then
    reply[r + 1], reply[r + 2], reply[r + 3] = allowed, left < 0 and 0 or left, wait
    r = r + 3
  else
    --@ define general
    r = one(l, i, k, from, reply, r, state, base)
  end
  from = from + STRIDE
end
return reply
