"""A host's open handles on a running desktop: its network, processes and written files."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
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
        with ExitStack() as opening:
            network = os.open(proc / str(session) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
            opening.callback(os.close, network)
            written = os.open(upper, folders)
            opening.callback(os.close, written)
            handles = cls(network, written, os.open(proc, folders), session)
            opening.pop_all()
        return handles

    def copy(self) -> DesktopHandles:
        """Returns duplicates, which must be closed separately.

        Raises:
            OSError: This process may open no more files.
        """
        with ExitStack() as copying:
            network = os.dup(self.network)
            copying.callback(os.close, network)
            written = os.dup(self.written)
            copying.callback(os.close, written)
            handles = DesktopHandles(network, written, os.dup(self.processes), self.session)
            copying.pop_all()
        return handles

    def close(self) -> None:
        """Closes the descriptors."""
        for descriptor in (self.network, self.written, self.processes):
            os.close(descriptor)
