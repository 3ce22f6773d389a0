-- Finds delivered messages that nobody has worked on for too long.
-- KEYS[1] when each delivered message was last known to be worked on   ARGV[1] seconds   [2] how many at most, -1 for all
-- Returns their delivery tags, the latest first.
-- A time in the future comes from another clock (an earlier version's worker, or the server that this one replaced):
-- the message counts as worked on now, so that it becomes overdue some day.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
for _, tag in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.6f', now), '+inf')) do
  redis.call('ZADD', KEYS[1], now, tag)
end
local before = string.format('%.6f', now - tonumber(ARGV[1]))
return redis.call('ZREVRANGEBYSCORE', KEYS[1], before, '-inf', 'LIMIT', 0, ARGV[2])
