-- peek says what take would say, and writes nothing; what is left is so without the request.
-- KEYS, ARGV, reply  as for take
return decide_all(read_windows(), true)
