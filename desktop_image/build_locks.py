"""The locks of builds: a file for each part of an image, held by its builder and by the build's programs, which may outlive it.

A program can outlive a build that is killed, and goes on writing. It keeps the lock then, so that the next builder of the part
waits until the program has ended. Programs inherit it with ``pass_fds=descriptors()``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from desktop_image.locks import hold_file

_held: ContextVar[tuple[int, ...]] = ContextVar("_held", default=())


@contextmanager
def build_lock(path: Path, *, seconds: float = 0.0) -> Iterator[bool]:
    """Holds a lock for the body, and for the programs it runs until they end; yields whether it has the lock.

    Args:
        path: The lock's file, which is created.
        seconds: How long to wait while another process holds it.
    """
    descriptor = hold_file(path, seconds=seconds)
    if descriptor is None:
        yield False
        return
    try:
        with inherited([descriptor]):
            yield True
    finally:
        os.close(descriptor)


@contextmanager
def inherited(locks: Iterable[int]) -> Iterator[None]:
    """Has the programs that the body runs hold locks that this process holds, given by their descriptors."""
    before = _held.set((*_held.get(), *locks))
    try:
        yield
    finally:
        _held.reset(before)


def descriptors() -> tuple[int, ...]:
    """Returns the descriptors of the locks that programs of the present build inherit."""
    return _held.get()
