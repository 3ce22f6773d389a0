-- Marks a run as over, once, by the finaliser that still holds it.
-- KEYS[1] the run's key   KEYS[2] the set of active runs   ARGV[1] token of the finaliser   [2] run id
-- ARGV[3] seconds the run's keys are kept   [4] finished (ISO time)   [5] why there is no report, or ''
-- Returns the run's final state, or 'superseded'. Safe to repeat after a lost reply.
local run = KEYS[1]
local state = redis.call('HGET', run, 'state')
if redis.call('HGET', run, 'finalizer') ~= ARGV[1] then return 'superseded' end
if state == 'done' or state == 'cancelled' then return state end
if state ~= 'finalizing' then return 'superseded' end
local final = 'done'
if redis.call('HGET', run, 'state_before') == 'cancelling' then final = 'cancelled' end
redis.call('HSET', run, 'state', final, 'finished', ARGV[4], 'problem', ARGV[5])
redis.call('HINCRBY', run, 'times_finalised', 1)
redis.call('SREM', KEYS[2], ARGV[2])
for _, part in ipairs({'', ':items', ':pending', ':attempts', ':alive', ':holders', ':results', ':counts', ':spent'}) do
  redis.call('EXPIRE', run .. part, ARGV[3])
end
return final
