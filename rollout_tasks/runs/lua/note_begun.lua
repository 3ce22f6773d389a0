-- Notes rollouts as begun that this server has forgotten to be: their folders show it. See cancel.lua.
-- KEYS[1] the run's key   ARGV[1...] rollout ids
local run = KEYS[1]
for _, rollout in ipairs(ARGV) do
  if redis.call('SISMEMBER', run .. ':pending', rollout) == 1 then redis.call('HSETNX', run .. ':attempts', rollout, 0) end
end
return redis.status_reply('OK')
