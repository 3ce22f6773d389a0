-- Takes a VM out of service once nobody uses it, or puts it back.
--
-- ARGV[2]  vm, ARGV[3]  '1' to drain, '0' to undo it
--
-- A quarantine by an operator, which has no time of a next try, goes on until a reset: the VM is drained in it. (One without a host,
-- which nobody could reset, is stopped.)
--
-- Returns the state the VM is in now, '' when the pool has no such VM.

local vm = ARGV[2]
local key = P .. ':vm:' .. vm
local is = call('HMGET', key, 'state', 'fence', 'host', 'drained', 'retry_at')
if not is[1] then return '' end
if ARGV[3] == '1' then
  call('HSET', key, 'drained', '1')
  if is[1] == 'free' or (is[1] == 'error' and (is[5] or is[3] == '')) then
    call('ZREM', P .. ':free', vm)
    call('HSET', key, 'state', 'stopped', 'fence', is[2] + 1, 'since', now)
    call('HDEL', key, 'error', 'failures', 'retry_at')
    note('stopped', vm, text(is[2] + 1), is[3])
    tell_host(is[3], vm)
  end
elseif is[4] then
  call('HDEL', key, 'drained')
  if is[1] == 'stopped' and is[3] == '' then
    call('HSET', key, 'state', 'free', 'since', now)
    offer(vm, '')
  elseif is[1] == 'stopped' then
    call('HSET', key, 'state', 'initializing', 'fence', is[2] + 1, 'since', now)
    note('boot_begun', vm, text(is[2] + 1), is[3])
    tell_host(is[3], vm)
  end
end
return call('HGET', key, 'state')
