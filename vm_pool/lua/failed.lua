-- A host reports that a boot or reset failed: the VM is quarantined.
--
-- ARGV[2]  vm, ARGV[3]  the fence under which it began, ARGV[4]  one sentence
-- ARGV[5]  delay before the host tries again after a first failure, ARGV[6]  the longest delay (microseconds)
--
-- Returns how many times in a row it failed, or 0 when the report is about a state the VM has left.

local vm = ARGV[2]
local key = P .. ':vm:' .. vm
local is = call('HMGET', key, 'state', 'fence', 'host')
if is[2] ~= ARGV[3] or (is[1] ~= 'initializing' and is[1] ~= 'resetting') then return 0 end
local failures = call('HINCRBY', key, 'failures', 1)
local delay = math.min(ARGV[5] * 2 ^ math.min(failures - 1, 30), tonumber(ARGV[6]))
call('HSET', key, 'state', 'error', 'error', ARGV[4], 'since', now, 'retry_at', now + delay)
count('quarantined')
note('quarantined', vm, is[2], is[3])
tell_host(is[3], vm)
return failures
