-- Reserves a run's id and stores its description, in one step.
-- KEYS[1] the run's key   KEYS[2] the set of active runs   ARGV[1] run id   [2] token of this submission
-- ARGV[3...] field, value, field, value, ...
-- Returns 1, or 0 when the id is taken. Safe to repeat after a lost reply.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.call('HGET', KEYS[1], 'submission') == ARGV[2] and 1 or 0
end
local time = redis.call('TIME')
local now = tostring(tonumber(time[1]) + tonumber(time[2]) / 1e6)
redis.call('HSET', KEYS[1], 'state', 'submitting', 'submission', ARGV[2], 'created', now, 'submitter_beat', now,
  unpack(ARGV, 3))
redis.call('SADD', KEYS[2], ARGV[1])
return 1
