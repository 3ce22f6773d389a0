-- Puts a delivered message back into its queue, once.
-- KEYS[1] when each delivered message was last known to be worked on   KEYS[2] the delivered messages   KEYS[3...] its queues
-- ARGV[1] delivery tag   [2] the message as it is to be queued (JSON)   [3] LPUSH to be the queue's last, RPUSH to be its next
-- ARGV[4] do nothing if it was worked on less than so many seconds ago; 0 for always
-- Returns 1, or 0 when it is no longer delivered or is being worked on.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return 0
end
local time = redis.call('TIME')
local worked_on = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '0')
if tonumber(time[1]) + tonumber(time[2]) / 1e6 - worked_on < tonumber(ARGV[4]) then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
for at = 3, #KEYS do redis.call(ARGV[3], KEYS[at], ARGV[2]) end
return 1
