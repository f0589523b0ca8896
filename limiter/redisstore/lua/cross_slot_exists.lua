for i = 1, #KEYS do redis.call('EXISTS', KEYS[i]) end -- not all are read before one is written
