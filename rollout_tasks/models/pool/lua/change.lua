-- Changes a replica's state, its weight version, its checkpoint, or several at once; only from what the caller saw. Said twice, the second
-- time finds what it wants and changes nothing. A replica that is dead stays so.
--
-- KEYS[1]  the pool's prefix
-- ARGV[1]  id, ARGV[2]  instance, ARGV[3]  the fence that the caller saw
-- ARGV[4]  the new state, ARGV[5]  the new weight version, ARGV[6]  the new checkpoint; '' to leave it
--
-- Returns the replica's row, or why nothing was changed: 'gone', 'replaced', 'changed' or 'dead'.

local id = ARGV[1]
local key = P .. ':replica:' .. id
local state = state_of(id)
if not state then return 'gone' end
local is = call('HMGET', key, 'instance', 'fence', 'version', 'checkpoint', 'last')
if is[1] ~= ARGV[2] then return 'replaced' end
local new_state = ARGV[4] ~= '' and ARGV[4] or state
local new_version = ARGV[5] ~= '' and ARGV[5] or is[3]
local new_checkpoint = ARGV[6] ~= '' and ARGV[6] or is[4] or ''
local last = new_checkpoint ~= is[4] and is[4] or is[5] or ''
if new_state == state and new_version == is[3] and new_checkpoint == (is[4] or '') then return row(id) end
if state == 'dead' then return 'dead' end
if is[2] ~= ARGV[3] then return 'changed' end
call('HSET', key, 'state', new_state, 'version', new_version, 'checkpoint', new_checkpoint, 'last', last,
  'fence', text(math.max(now, is[2] + 1)))
if new_state == 'dead' then call('DEL', P .. ':in_flight:' .. id) end
return row(id)
