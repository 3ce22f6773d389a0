-- Takes a replica out of the pool. Only its own process can, or who names that process.
--
-- KEYS[1]  the pool's prefix
-- ARGV[1]  id, ARGV[2]  instance
--
-- Returns 1 when it was there, else 0.

if call('HGET', P .. ':replica:' .. ARGV[1], 'instance') ~= ARGV[2] then return 0 end
forget(ARGV[1])
return 1
