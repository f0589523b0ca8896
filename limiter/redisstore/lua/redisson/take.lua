-- take decides requests, see decide.lua.
return run(function() return decide(false) end)
