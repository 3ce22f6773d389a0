-- Ends a pick: its request is in flight no more. Said twice, the second time answers the same and changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV[1]  token of the pick, ARGV[2]  how long it is known after its end (microseconds)
--
-- Returns the weight version that the process which had the request has now; '' when it no longer serves as the replica, or
-- the pick is not known (any more).

local pick = P .. ':pick:' .. ARGV[1]
local is = call('HMGET', pick, 'replica', 'instance', 'ended')
if not is[1] then return '' end
if is[3] then return is[3] end
call('ZREM', P .. ':in_flight:' .. is[1], ARGV[1])
local serves = call('HMGET', P .. ':replica:' .. is[1], 'instance', 'version')
local version = serves[1] == is[2] and serves[2] or ''
call('HSET', pick, 'ended', version)
expire(pick, ARGV[2])
return version
