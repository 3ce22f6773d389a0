-- Takes VMs out of the pool for good; their leases end.
--
-- ARGV[2], ...  vms
--
-- Returns how many there were.

local removed = 0
for i = 2, #ARGV do
  local vm = ARGV[i]
  local key = P .. ':vm:' .. vm
  local is = call('HMGET', key, 'state', 'fence', 'host')
  if is[1] then
    if is[1] == 'leased' then
      call('HSET', key, 'needs_reset', '1') -- must not go to a waiter on its way
      take_back(vm, 'revoked')
    end
    call('ZREM', P .. ':free', vm)
    call('SREM', P .. ':vms', vm)
    call('SREM', P .. ':host:' .. is[3], vm)
    call('DEL', key)
    note('removed', vm, is[2], is[3])
    removed = removed + 1
  end
end
return removed
