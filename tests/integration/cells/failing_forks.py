"""As `inside`, but the second cell cannot be forked: this machine has as many processes as it may have."""

from __future__ import annotations

import errno
import os

from tests.integration.cells.inside import serve

__all__ = ["serve"]

_fork = os.fork
_forks = 0


def _fork_but_once() -> int:
    global _forks
    _forks += 1
    if _forks == 2:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return _fork()


os.fork = _fork_but_once
