-- A host goes for good: it no longer counts as one. Its VMs are removed before.
--
-- ARGV[2]  host, ARGV[3]  its instance
--
-- Returns 1, or 0 when another instance speaks for the host.

local host = ARGV[2]
if call('HGET', P .. ':hosts', host) ~= ARGV[3] then return 0 end
call('HDEL', P .. ':hosts', host)
call('HDEL', P .. ':servers', host)
call('HDEL', P .. ':images', host)
call('ZREM', P .. ':timers', 'host:' .. host)
call('DEL', P .. ':work:' .. host)
return 1
