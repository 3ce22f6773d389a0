-- Cancels a run: what nobody holds is committed as cancelled here, running rollouts hear of it at their next beat.
-- KEYS[1] the run's key   ARGV[1] verdict of a rollout that never ran (JSON)
-- ARGV[2] seconds without a beat after which a holder counts as dead
-- Returns {state found, rollouts cancelled here, rollouts left}
local run = KEYS[1]
local state = redis.call('HGET', run, 'state')
if not state then return {'unknown', 0, 0} end
if state == 'done' or state == 'cancelled' or state == 'finalizing' then return {state, 0, 0} end
redis.call('HSET', run, 'state', 'cancelling', 'chord_spent', '1')
local time = redis.call('TIME')
local fresh = tonumber(time[1]) + tonumber(time[2]) / 1e6 - tonumber(ARGV[2])
local cancelled = 0
for _, rollout in ipairs(redis.call('SMEMBERS', run .. ':pending')) do
  local beat = tonumber(redis.call('ZSCORE', run .. ':alive', rollout) or '0')
  if beat < fresh then
    redis.call('HSET', run .. ':results', rollout, ARGV[1])
    redis.call('SREM', run .. ':pending', rollout)
    redis.call('ZREM', run .. ':alive', rollout)
    redis.call('HDEL', run .. ':holders', rollout)
    redis.call('HDEL', run .. ':attempts', rollout)
    cancelled = cancelled + 1
  end
end
if cancelled > 0 then
  redis.call('HINCRBY', run .. ':counts', 'cancelled', cancelled)
  redis.call('HINCRBY', run .. ':counts', 'class:cancelled', cancelled)
end
return {state, cancelled, redis.call('SCARD', run .. ':pending')}
