"""What a host holds of a running desktop, by descriptors that stay what they are: its network, processes and written files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DesktopHandles:
    """Open descriptors, and a process id."""

    network: int
    """Of its network namespace."""
    written: int
    """Of the upper directory of its overlay."""
    processes: int
    """Of its keeper's /proc."""
    session: int
    """The guest's process 1, as it is numbered there."""

    @classmethod
    def found(cls, keepers_root: Path, folder: Path) -> DesktopHandles:
        """Those of a desktop that has just started.

        Args:
            keepers_root: The root of its keeper's files, as this process sees it.
            folder: The desktop's, as its keeper sees it.

        Raises:
            OSError: It has ended.
        """
        session = int((folder / "init").read_text())
        proc = keepers_root / "proc"
        network = os.open(proc / str(session) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
        folders = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        written = os.open(keepers_root / (folder / "disk" / "upper").relative_to("/"), folders)
        return cls(network, written, os.open(proc, folders), session)

    def copy(self) -> DesktopHandles:
        """The same, to be closed apart."""
        return DesktopHandles(os.dup(self.network), os.dup(self.written), os.dup(self.processes), self.session)

    def close(self) -> None:
        """Lets go of them."""
        for descriptor in (self.network, self.written, self.processes):
            os.close(descriptor)
