"""A host's open handles on a running desktop: its network, processes and written files."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DesktopHandles:
    """Open file descriptors, and a process id."""

    network: int
    """Of its network namespace."""
    written: int
    """Of the upper directory of its overlay."""
    processes: int
    """Of its keeper's /proc."""
    session: int
    """The guest's process 1, as numbered in that /proc."""

    @classmethod
    def found(cls, keepers_root: Path, folder: Path) -> DesktopHandles:
        """Opens the handles of a desktop that has just started.

        Args:
            keepers_root: The root of its keeper's file system, as this process sees it.
            folder: The desktop's folder, as its keeper sees it.

        Raises:
            OSError: It has ended, or this process may open no more files.
        """
        session = int((folder / "init").read_text())
        proc = keepers_root / "proc"
        upper = keepers_root / (folder / "disk" / "upper").relative_to("/")
        folders = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        network, written, processes = _all_or_none(
            lambda: os.open(proc / str(session) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC),
            lambda: os.open(upper, folders),
            lambda: os.open(proc, folders),
        )
        return cls(network, written, processes, session)

    def copy(self) -> DesktopHandles:
        """Returns duplicates, which must be closed separately.

        Raises:
            OSError: This process may open no more files.
        """
        opened = (self.network, self.written, self.processes)
        network, written, processes = _all_or_none(*(partial(os.dup, one) for one in opened))
        return DesktopHandles(network, written, processes, self.session)

    def close(self) -> None:
        """Closes the descriptors."""
        for descriptor in (self.network, self.written, self.processes):
            os.close(descriptor)


def _all_or_none(*steps: Callable[[], int]) -> list[int]:
    """Returns the descriptors that the steps open; if one of them fails, none stays open."""
    with ExitStack() as opening:
        opened = []
        for step in steps:
            opened.append(step())
            opening.callback(os.close, opened[-1])
        opening.pop_all()
    return opened
