-- Takes VMs out of the pool for good; their leases end.
--
-- ARGV[2], ...  vms
--
-- Returns how many there were.

local removed = 0
for i = 2, #ARGV do
  local vm = ARGV[i]
  local key = P .. ':vm:' .. vm
  local is = call('HMGET', key, 'state', 'fence', 'host', 'grants')
  if is[1] then
    if is[1] == 'leased' then revoke(vm, lease_of(vm)) end
    call('HINCRBY', P .. ':counters', 'granted', is[4] or 0)
    call('ZREM', P .. ':free', vm)
    call('SREM', P .. ':vms', vm)
    call('SREM', P .. ':host:' .. is[3], vm)
    call('ZREM', P .. ':timers', 'lease:' .. vm)
    call('DEL', key)
    note('removed', vm, is[2], is[3])
    if call('SCARD', P .. ':host:' .. is[3]) == 0 and not heard(is[3]) then
      call('HDEL', P .. ':hosts', is[3]) -- the last VM of a host that is gone
      call('HDEL', P .. ':servers', is[3])
      call('HDEL', P .. ':images', is[3])
      call('DEL', P .. ':work:' .. is[3])
    end
    removed = removed + 1
  end
end
return removed
