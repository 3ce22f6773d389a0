-- A waiter stops waiting. A grant that came in the same moment is taken, or given back.
--
-- ARGV[2]  token
-- ARGV[3]  '1': give such a grant back; '0': return it
--
-- Returns {1, vm, fence, deadline, now, endpoint} or {0, its place in the queue (1 = next) or 0, now}.

reap()

local token = ARGV[2]
local rank = call('ZRANK', P .. ':queue', token)
if rank then
  call('ZREM', P .. ':queue', token)
  forget_waiter(token)
  count('gave_up')
  return { 0, rank + 1, now }
end
local held = leased_under(token)
if held and ARGV[3] == '0' then return grant_again(held, token) end
if held then take_back(held, lease_of(held), 'returned') end
return { 0, 0, now }
