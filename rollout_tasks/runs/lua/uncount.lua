-- Uncounts an attempt that says nothing about the agent; its execution keeps the claim. A second call changes nothing.
-- KEYS[1] the run's key   ARGV[1] rollout id   [2] token of the execution   [3] the attempt
-- Returns 1, or 0 when another execution has the rollout or it has a verdict.
local run, rollout = KEYS[1], ARGV[1]
local holder = redis.call('HGET', run .. ':holders', rollout)
if not holder or cjson.decode(holder)['token'] ~= ARGV[2] then return 0 end
redis.call('HSET', run .. ':attempts', rollout, math.max(0, tonumber(ARGV[3]) - 1))
return 1
