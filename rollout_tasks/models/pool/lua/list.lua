-- Every replica at one moment. Removes those that have been silent for too long.
--
-- KEYS[1]  the pool's prefix
--
-- Returns their rows, in the order of their ids.

local rows = {}
local ids = call('ZRANGE', P .. ':replicas', 0, -1)
table.sort(ids)
for _, id in ipairs(ids) do
  if state_of(id) then rows[#rows + 1] = row(id) end
end
return rows
