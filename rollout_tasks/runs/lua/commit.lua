-- Records a rollout's verdict: only its current holder may, and the first one counts. Safe to repeat after a lost reply.
-- KEYS[1] the run's key   ARGV[1] rollout id   [2] token of the execution   [3] verdict (JSON, carries the token)
-- ARGV[4] status   [5] failure class or ''   [6] score or ''   [7] dollars or '': for all attempts that are known
-- [8] dollars or '': what of it the earlier attempts cost. Those before a resume are in `:spent`, and in the run's cost
-- already; where the worker could not read all of them, nothing is taken off
-- Returns {outcome, rollouts of the run without a verdict, 1 when the caller must ask for the run to be finalised,
-- 1 when the caller must cancel the run, because it has cost as much as it may}
-- outcome: ok | committed (there is an earlier one) | superseded | unknown
local run, rollout = KEYS[1], ARGV[1]
if redis.call('EXISTS', run) == 0 then return {'unknown', 0, 0, 0} end
local described = redis.call('HMGET', run, 'total', 'chord_spent', 'max_cost', 'state')
local left = tonumber(described[1]) - redis.call('HLEN', run .. ':results')
local earlier = redis.call('HGET', run .. ':results', rollout)
local finalise = 0
if earlier then
  if cjson.decode(earlier)['token'] ~= ARGV[2] then return {'committed', left, 0, 0} end
else
  local holder = redis.call('HGET', run .. ':holders', rollout)
  if not holder or cjson.decode(holder)['token'] ~= ARGV[2] then return {'superseded', left, 0, 0} end
  redis.call('HSET', run .. ':results', rollout, ARGV[3])
  redis.call('SREM', run .. ':pending', rollout)
  redis.call('ZREM', run .. ':alive', rollout)
  redis.call('HDEL', run .. ':holders', rollout)
  redis.call('HDEL', run .. ':attempts', rollout)
  redis.call('HINCRBY', run .. ':counts', ARGV[4], 1)
  if ARGV[5] ~= '' then redis.call('HINCRBY', run .. ':counts', 'class:' .. ARGV[5], 1) end
  if ARGV[6] ~= '' then redis.call('HINCRBYFLOAT', run .. ':counts', 'score', ARGV[6]) end
  if ARGV[7] ~= '' then
    redis.call('HINCRBYFLOAT', run .. ':counts', 'cost', ARGV[7])
    local spent = redis.call('HGET', run .. ':spent', rollout)
    local earlier = tonumber(ARGV[8])
    if spent and earlier and earlier >= tonumber(spent) * (1 - 1e-9) then  -- the same, summed up in another order, may be less
      redis.call('HINCRBYFLOAT', run .. ':counts', 'cost', '-' .. spent)
    end
  end
  left = left - 1
end
local reached_max_cost = 0
local most = tonumber(described[3] or '')
if most and left > 0 and described[4] ~= 'cancelling' then
  if tonumber(redis.call('HGET', run .. ':counts', 'cost') or '0') >= most then reached_max_cost = 1 end
end
if left == 0 and described[2] == '1' then finalise = 1 end
return {'ok', left, finalise, reached_max_cost}
