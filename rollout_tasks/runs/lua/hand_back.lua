-- Gives a rollout's claim back, because its worker stops before the attempt is over; the attempt does not count.
-- KEYS[1] the run's key   ARGV[1] rollout id   [2] token of the execution   [3] 1 when the attempt is counted so far
-- The rollout still counts as begun: its folder may have a verdict, which a cancellation must look for.
-- Returns 1, or 0 when another execution has the rollout or it has a verdict. A second call changes nothing.
local run, rollout = KEYS[1], ARGV[1]
local holder = redis.call('HGET', run .. ':holders', rollout)
if not holder or cjson.decode(holder)['token'] ~= ARGV[2] then return 0 end
redis.call('HDEL', run .. ':holders', rollout)
redis.call('ZREM', run .. ':alive', rollout)
if ARGV[3] == '1' and redis.call('HINCRBY', run .. ':attempts', rollout, -1) < 0 then redis.call('HSET', run .. ':attempts', rollout, 0) end
return 1
