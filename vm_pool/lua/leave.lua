-- A waiter stops waiting. A grant that came in the same moment is taken, or given back.
--
-- ARGV[2]  token
-- ARGV[3]  '1': give such a grant back; '0': return it
--
-- Returns {1, vm, fence, deadline, now, endpoint} or {0, its place in the queue (1 = next) or 0, now}.

reap()

local token = ARGV[2]
local held = held_under(token)
if held then
  if ARGV[3] == '0' then return held end
  take_back(held[2], 'returned')
end
local rank = call('ZRANK', P .. ':queue', token)
call('ZREM', P .. ':queue', token)
forget_waiter(token)
if not rank then return { 0, 0, now } end
call('HINCRBY', P .. ':counters', 'gave_up', 1)
return { 0, rank + 1, now }
