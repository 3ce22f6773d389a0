-- Ends the leases and waits of processes that have ended, as if their time were over.
--
-- ARGV[2], ARGV[3], ...  a leased VM and its fence, or a waiter's token and ''
--
-- Returns how many of them were still there.

local ended = 0
for i = 2, #ARGV, 2 do
  local id, fence = ARGV[i], ARGV[i + 1]
  if fence == '' then
    if call('ZREM', P .. ':queue', id) == 1 then
      forget_waiter(id)
      count('waiters_lost')
      ended = ended + 1
    end
  else
    local lease = lease_of(id)
    if lease[STATE] == 'leased' and lease[FENCE] == fence then
      count('holders_lost')
      take_back(id, lease, 'expired')
      ended = ended + 1
    end
  end
end
return ended
