"""How many files and connections a process may have open: VMs and their guests' connections need more than is usual."""

from __future__ import annotations

import resource

DESCRIPTORS = 65_536


def raise_descriptor_limit() -> None:
    """Raises this process's limit to `DESCRIPTORS`, as far as it is allowed to."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, DESCRIPTORS)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
