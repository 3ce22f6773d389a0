-- Finds rollouts without a verdict that nobody has claimed lately and for which no message was noted, a part at a time.
-- KEYS[1] the run's key   KEYS[2] where messages were noted (set of '<run> <rollout>')   KEYS[3] the set for what is found
-- ARGV[1] run id   [2] seconds without a beat after which a holder counts as dead   [3] cursor   [4] how many
-- Returns the next cursor, '0' at the end.
local run = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local fresh = now - tonumber(ARGV[2])
local found = redis.call('SSCAN', run .. ':pending', ARGV[3], 'COUNT', ARGV[4])
for _, rollout in ipairs(found[2]) do
  local beat = tonumber(redis.call('ZSCORE', run .. ':alive', rollout) or '0')
  if beat > now then redis.call('ZADD', run .. ':alive', now, rollout) end -- the clock was set back, see claim.lua
  if beat < fresh and redis.call('SISMEMBER', KEYS[2], ARGV[1] .. ' ' .. rollout) == 0 then
    redis.call('SADD', KEYS[3], rollout)
  end
end
redis.call('EXPIRE', KEYS[3], 3600)
return found[1]
