-- A host reports a VM clean and checked, at this endpoint.
--
-- ARGV[2]  vm, ARGV[3]  the fence under which the boot or reset began, ARGV[4]  endpoint as JSON
--
-- Returns the state the VM is in now (free, leased when a waiter took it at once, stopped when drained), or '' when
-- the report is about a state the VM has left.

local vm = ARGV[2]
local key = P .. ':vm:' .. vm
local is = call('HMGET', key, 'state', 'fence', 'host', 'drained')
if is[2] ~= ARGV[3] or (is[1] ~= 'initializing' and is[1] ~= 'resetting') then return '' end
call('HSET', key, 'endpoint', ARGV[4], 'since', now)
call('HDEL', key, 'error', 'failures', 'retry_at')
if is[1] == 'resetting' then
  call('HINCRBY', key, 'resets', 1)
  count('reset_done')
  note('reset_done', vm, is[2], is[3])
else
  note('booted', vm, is[2], is[3])
end
if is[4] then
  call('HSET', key, 'state', 'stopped')
  note('stopped', vm, is[2], is[3])
  tell_host(is[3], vm)
else
  call('HSET', key, 'state', 'free')
  offer(vm, is[3])
end
return call('HGET', key, 'state')
