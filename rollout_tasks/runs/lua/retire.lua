-- Takes a run that is gone or over from the active ones. One that goes on, as a run resumed just now does, stays.
-- KEYS[1] the run's key   KEYS[2] the set of active runs   ARGV[1] run id
-- Returns 1 when the run was taken from them.
local state = redis.call('HGET', KEYS[1], 'state')
if state and state ~= 'done' and state ~= 'cancelled' then return 0 end
return redis.call('SREM', KEYS[2], ARGV[1])
