-- Moves a run from one of the given states to a new one; a run in any other state stays as it is.
-- KEYS[1] the run's key   ARGV[1] new state   [2...] the states it may be in
-- Returns the state it is in now, or false when the run is gone.
local state = redis.call('HGET', KEYS[1], 'state')
for at = 2, #ARGV do
  if state == ARGV[at] then
    redis.call('HSET', KEYS[1], 'state', ARGV[1])
    return ARGV[1]
  end
end
return state
