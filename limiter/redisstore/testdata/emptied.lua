-- What a master of a cluster does while a slot moves away: a key that a script has emptied is of the other master now, so
-- no command of the script may ask for it any more. Scripts for Redisson do not run then: they declare five keys, which
-- are never all there.
local real, emptied = redis, {}
local MANY = { MGET = true, EXISTS = true, DEL = true }
local function strict(run)
  return function(command, ...)
    local keys, were = { ... }, {}
    for i = MANY[command] and #keys or command ~= 'TIME' and 1 or 0, 1, -1 do
      if emptied[keys[i]] then
        local text = 'ERR ' .. command .. ' of ' .. keys[i] .. ', which the script has emptied'
        return run == real.pcall and real.error_reply(text) or error(text)
      end
      were[keys[i]] = real.call('EXISTS', keys[i])
    end
    local reply = run(command, ...)
    for key, was in pairs(were) do
      emptied[key] = was == 1 and real.call('EXISTS', key) == 0
    end
    return reply
  end
end
local redis = { call = strict(real.call), pcall = strict(real.pcall), error_reply = real.error_reply }
