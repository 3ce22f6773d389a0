-- A replica's process says that the replica is alive.
--
-- KEYS[1]  the pool's prefix
-- ARGV[1]  id, ARGV[2]  instance, ARGV[3]  how long it counts as alive from now on (microseconds)
--
-- Returns 'heard'; 'gone' when the pool does not have it, as after a silence; or 'replaced' when another process took over.

if not state_of(ARGV[1]) then return 'gone' end
if call('HGET', P .. ':replica:' .. ARGV[1], 'instance') ~= ARGV[2] then return 'replaced' end
hear(ARGV[1], ARGV[3])
return 'heard'
