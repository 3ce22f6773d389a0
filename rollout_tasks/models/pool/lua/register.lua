-- Puts a replica into the pool, or takes over the id of one whose process ended. Said twice, the second time is a mere
-- sign of life. Requests that were in flight on the process before are counted no more.
--
-- KEYS[1]  the pool's prefix
-- ARGV[1]  id, ARGV[2]  instance: names this process, and no other one ever
-- ARGV[3]  how long it counts as alive (microseconds)
-- ARGV[4]  state: starting or ready
-- ARGV[5]  base URL, ARGV[6]  model, ARGV[7]  weight version, ARGV[8]  host, ARGV[9]  gpu or '', ARGV[10]  pid or ''
-- ARGV[11]  the checkpoint that its server was started with, '' where it is not known, ARGV[12]  the one before
--
-- Returns the replica's row, or {} when another process has taken over from this one.

local id, instance = ARGV[1], ARGV[2]
local key = P .. ':replica:' .. id
state_of(id)
local was = call('HMGET', key, 'instance', 'replaced', 'fence')
if was[2] == instance then return {} end
if was[1] ~= instance then
  call('DEL', key, P .. ':in_flight:' .. id)
  call('HSET', key, 'instance', instance, 'replaced', was[1] or '', 'fence', text(math.max(now, (was[3] or 0) + 1)),
    'state', ARGV[4], 'started', now, 'url', ARGV[5], 'model', ARGV[6], 'version', ARGV[7], 'host', ARGV[8],
    'gpu', ARGV[9], 'pid', ARGV[10], 'checkpoint', ARGV[11], 'last', ARGV[12])
  call('ZADD', P .. ':replicas', 0, id)
  call('ZREM', P .. ':silent', id)
end
hear(id, ARGV[3])
return row(id)
