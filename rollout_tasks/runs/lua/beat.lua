-- Keeps a rollout's claim fresh and tells its holder the run's state.
-- KEYS[1] the run's key   ARGV[1] rollout id   [2] token of the execution
-- Returns the run's state, 'superseded' when another execution has the rollout, 'unknown' when the run is gone.
local run = KEYS[1]
local state = redis.call('HGET', run, 'state')
if not state then return 'unknown' end
local holder = redis.call('HGET', run .. ':holders', ARGV[1])
if not holder or cjson.decode(holder)['token'] ~= ARGV[2] then return 'superseded' end
local time = redis.call('TIME')
redis.call('ZADD', run .. ':alive', tonumber(time[1]) + tonumber(time[2]) / 1e6, ARGV[1])
return state
