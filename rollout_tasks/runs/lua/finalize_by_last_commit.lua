-- Makes the last commit of a run ask for its finalising. A run that is gone stays gone.
-- KEYS[1] the run's key
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'chord_spent', '1') end
return redis.status_reply('OK')
