-- Cancels a run: rollouts that nobody has begun are committed as cancelled here, a part at a time; running ones hear of it
-- at their next beat. One that was begun and that nobody holds may have left a result in the run's folder: it is returned.
-- begin_cancel.lua comes first, then note_begun.lua.
-- KEYS[1] the run's key   KEYS[2] the set of active runs   ARGV[1] verdict of a rollout that never ran (JSON)
-- ARGV[2] seconds without a beat after which a holder counts as dead   [3] cursor, 0 at first   [4] how many rollouts to look at
-- ARGV[5] run id   [6] seconds the run's keys are kept when it is over   [7] why a half-submitted run has no report
-- ARGV[8] the creation time of the run that is meant; one that was resumed meanwhile is another
-- Returns {state found, rollouts cancelled here, rollouts left, next cursor, '0' at the end,
-- {rollout that was begun and that nobody holds, ...}}
-- A half-submitted run is over at once: it lacks rollouts, so there is nothing to score.
local run = KEYS[1]
local described = redis.call('HMGET', run, 'state', 'total', 'created')
local state = described[1]
if not state or (described[3] or '') ~= ARGV[8] then return {'unknown', 0, 0, '0', {}} end
if state == 'done' or state == 'cancelled' or state == 'finalizing' then return {state, 0, 0, '0', {}} end
redis.call('HSET', run, 'state', 'cancelling', 'chord_spent', '1')
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local fresh = now - tonumber(ARGV[2])
local cancelled, begun = 0, {}
local found = redis.call('SSCAN', run .. ':pending', ARGV[3], 'COUNT', ARGV[4])
for _, rollout in ipairs(found[2]) do
  local beat = tonumber(redis.call('ZSCORE', run .. ':alive', rollout) or '0')
  if beat > now then redis.call('ZADD', run .. ':alive', now, rollout) end -- the clock was set back, see claim.lua
  if beat < fresh and redis.call('HEXISTS', run .. ':attempts', rollout) == 1 then
    begun[#begun + 1] = rollout
  elseif beat < fresh then
    redis.call('HSET', run .. ':results', rollout, ARGV[1])
    redis.call('SREM', run .. ':pending', rollout)
    redis.call('ZREM', run .. ':alive', rollout)
    redis.call('HDEL', run .. ':holders', rollout)
    cancelled = cancelled + 1
  end
end
if cancelled > 0 then
  redis.call('HINCRBY', run .. ':counts', 'cancelled', cancelled)
  redis.call('HINCRBY', run .. ':counts', 'class:cancelled', cancelled)
end
local left = redis.call('SCARD', run .. ':pending')
if left == 0 and found[1] == '0' and redis.call('HLEN', run .. ':results') < tonumber(described[2]) then
  redis.call('HSET', run, 'state', 'cancelled', 'problem', ARGV[7])
  redis.call('SREM', KEYS[2], ARGV[5])
  for _, part in ipairs({'', ':items', ':pending', ':attempts', ':alive', ':holders', ':results', ':counts', ':spent'}) do
    redis.call('EXPIRE', run .. part, ARGV[6])
  end
end
return {state, cancelled, left, found[1], begun}
