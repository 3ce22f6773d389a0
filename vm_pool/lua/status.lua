-- Everything there is to know about the pool at one moment; changes nothing.
--
-- Returns {now, {vm, host lends '1' or '0', field, value, ...} per VM,
-- {token, "<ttl> <max age> <priority> <arrival> <holder>\n<process>", ...} in the order of the queue, {counter, value, ...},
-- {host, instance, ...}}.

local vms, waiters = {}, {}
for _, vm in ipairs(call('SMEMBERS', P .. ':vms')) do
  local row = { vm, '1' }
  local fields = call('HGETALL', P .. ':vm:' .. vm)
  for i = 1, #fields do row[#row + 1] = fields[i] end
  local host = call('HGET', P .. ':vm:' .. vm, 'host')
  if not lends(host) then row[2] = '0' end
  vms[#vms + 1] = row
end
for _, token in ipairs(call('ZRANGE', P .. ':queue', 0, -1)) do
  waiters[#waiters + 1] = token
  waiters[#waiters + 1] = call('HGET', P .. ':waiters', token) or ''
end
return { now, vms, waiters, call('HGETALL', P .. ':counters'), call('HGETALL', P .. ':hosts') }
