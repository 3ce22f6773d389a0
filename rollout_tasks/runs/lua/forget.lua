-- Removes every key of a run, unless it is in a state that the caller does not allow.
-- KEYS[1] the run's key   KEYS[2] the set of active runs   ARGV[1] run id   [2...] the states it may be in
-- Returns 1, or 0 when it is in another state. A run that is already gone counts as removed.
local state = redis.call('HGET', KEYS[1], 'state')
local allowed = not state
for at = 2, #ARGV do
  if state == ARGV[at] then allowed = true end
end
if not allowed then return 0 end
for _, part in ipairs({'', ':items', ':pending', ':attempts', ':alive', ':holders', ':results', ':counts', ':spent',
  ':suspects'}) do
  redis.call('DEL', KEYS[1] .. part)
end
redis.call('SREM', KEYS[2], ARGV[1])
return 1
