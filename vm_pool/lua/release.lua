-- Ends a lease early. Only the lease's own fence can; said twice, the second time changes nothing.
--
-- ARGV[2]  vm
-- ARGV[3]  fence, or '' for an operator who takes the VM from whoever holds it
--
-- Returns 1 when the lease was held until now, else 0.

local lease = lease_of(ARGV[2])
if lease[STATE] ~= 'leased' then return 0 end
if ARGV[3] == '' then
  take_back(ARGV[2], lease, 'revoked')
elseif lease[FENCE] == ARGV[3] then
  take_back(ARGV[2], lease, 'released')
else
  return 0
end
return 1
