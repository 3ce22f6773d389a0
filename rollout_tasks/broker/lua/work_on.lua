-- Records that a delivered message is being worked on now; one that is no longer delivered stays so.
-- KEYS[1] when each delivered message was last known to be worked on   ARGV[1] delivery tag
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], 'XX', tonumber(time[1]) + tonumber(time[2]) / 1e6, ARGV[1])
