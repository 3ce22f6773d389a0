-- Records a message as delivered, and as worked on now.
-- KEYS[1] when each delivered message was last known to be worked on   KEYS[2] the delivered messages
-- ARGV[1] delivery tag   [2] the message and its route (JSON)
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], tonumber(time[1]) + tonumber(time[2]) / 1e6, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
