-- Ends what is due. Returns how many leases, waiters and hosts that were.

return reap()
