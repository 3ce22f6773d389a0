-- Begins to cancel a run: none of its rollouts is begun from now on. cancel.lua does the rest. Safe to repeat.
-- KEYS[1] the run's key
-- Returns {state found, the run's creation time (text)}; changes nothing when the run is unknown, over or being finalised.
local described = redis.call('HMGET', KEYS[1], 'state', 'created')
local state = described[1]
if not state then return {'unknown', ''} end
if state ~= 'done' and state ~= 'cancelled' and state ~= 'finalizing' then
  redis.call('HSET', KEYS[1], 'state', 'cancelling', 'chord_spent', '1')
end
return {state, described[2] or ''}
