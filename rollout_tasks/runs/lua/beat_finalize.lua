-- Keeps a finaliser's claim fresh and tells it whether it still has the run.
-- KEYS[1] the run's key   ARGV[1] token of the finaliser
-- Returns 'finalizing', 'superseded' when another process has the run or it is over, 'unknown' when the run is gone.
local run = KEYS[1]
local state, finalizer = unpack(redis.call('HMGET', run, 'state', 'finalizer'))
if not state then return 'unknown' end
if state ~= 'finalizing' or finalizer ~= ARGV[1] then return 'superseded' end
local time = redis.call('TIME')
redis.call('HSET', run, 'finalizer_beat', string.format('%s.%06d', time[1], tonumber(time[2])))
return state
