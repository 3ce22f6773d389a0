-- Removes a delivered message that is done.
-- KEYS[1] when each delivered message was last known to be worked on   KEYS[2] the delivered messages
-- ARGV[1] delivery tag
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
