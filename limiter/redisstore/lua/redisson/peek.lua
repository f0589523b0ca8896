-- peek says what take would say, and writes nothing.
return run(function() return decide(true) end)
