-- Lets exactly one process at a time finalise a run, and only when there are as many results as rollouts.
-- KEYS[1] the run's key   ARGV[1] token of the finaliser   [2] seconds after which a silent finaliser counts as dead
-- Returns go | incomplete | busy | over (already finalised) | unknown. Safe to repeat after a lost reply.
-- The chord fires only once: if it fires early, the last commit is told to ask again (chord_spent).
local run = KEYS[1]
local state, total, finalizer, beat = unpack(redis.call('HMGET', run, 'state', 'total', 'finalizer', 'finalizer_beat'))
if not state then return 'unknown' end
if state == 'done' or state == 'cancelled' then return 'over' end
if redis.call('HLEN', run .. ':results') ~= tonumber(total) then
  redis.call('HSET', run, 'chord_spent', '1')
  return 'incomplete'
end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
if state == 'finalizing' then
  if finalizer ~= ARGV[1] and now - tonumber(beat or '0') < tonumber(ARGV[2]) then return 'busy' end
else
  redis.call('HSET', run, 'state_before', state)
end
redis.call('HSET', run, 'state', 'finalizing', 'finalizer', ARGV[1], 'finalizer_beat', string.format('%.6f', now))
return 'go'
