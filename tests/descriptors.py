"""What tests of a process's file descriptors share."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """For a while this process may open only so many more: those with the lowest numbers, whatever is closed meanwhile."""
    lowest = [os.open("/dev/null", os.O_RDONLY) for _ in range(number)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(lowest, default=2) + 1, hard))
    try:
        for one in lowest:
            os.close(one)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def how_many_descriptors() -> int:
    """How many this process has open, with the one that looks."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (numbers)
