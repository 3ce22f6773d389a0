-- Removes every key of a run, unless it is in a state that the caller does not allow, or belongs to another submission.
-- KEYS[1] the run's key   KEYS[2] the set of active runs   ARGV[1] run id
-- ARGV[2] token of the submission that it must belong to, or ''   [3...] the states it may be in
-- Returns 1, or 0 when it is in another state, or another submission's. A run that is already gone counts as removed.
local described = redis.call('HMGET', KEYS[1], 'state', 'submission')
local state = described[1]
local allowed = not state
for at = 3, #ARGV do
  if state == ARGV[at] then allowed = ARGV[2] == '' or ARGV[2] == described[2] end
end
if not allowed then return 0 end
for _, part in ipairs({'', ':items', ':pending', ':attempts', ':alive', ':holders', ':results', ':counts', ':spent',
  ':suspects'}) do
  redis.call('DEL', KEYS[1] .. part)
end
redis.call('SREM', KEYS[2], ARGV[1])
return 1
