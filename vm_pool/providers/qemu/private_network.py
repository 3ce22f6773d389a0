"""A private network for one QEMU: its forwarded ports are on its own loopback, which other programs cannot reach.

Making one needs root. Without root, a machine's ports are on this machine's loopback, without a login.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from vm_pool.namespaces import bring_loopback_up, connect_inside, inside


class PrivateNetwork:
    """One machine's network, without internet access."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._namespace: int | None = None

    def lead_through(self, folder: Path, command: list[str]) -> list[str]:  # noqa: ARG002 (for those that need it)
        """Returns the command that runs another one in its own namespace.

        Args:
            folder: The machine's.
            command: QEMU's.
        """
        return ["unshare", "--net", *command]

    def enter(self, keeper: int) -> None:
        """Opens the namespace.

        Args:
            keeper: The process whose only child is QEMU.

        Raises:
            OSError: QEMU has ended.
            RuntimeError: It is not in its own namespace.
        """
        qemu = Path(f"/proc/{keeper}/task/{keeper}/children").read_text(encoding="utf-8").split()
        if len(qemu) != 1:
            raise RuntimeError("QEMU has ended")
        namespace = os.open(f"/proc/{qemu[0]}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with self._lock:
            self._namespace = namespace
        if os.path.samestat(os.fstat(namespace), Path("/proc/self/ns/net").stat()):
            raise RuntimeError("QEMU is not in a network namespace of its own")
        inside(namespace, bring_loopback_up)

    def open(self) -> None:
        """Does nothing: the guest has no internet access."""

    def shut(self) -> None:
        """Does nothing: the guest has no internet access."""

    def connect(self, port: int, seconds: float) -> socket.socket:
        """Opens a connection to a port that QEMU forwards.

        Raises:
            OSError: Nothing listens there, or the machine has ended.
        """
        namespace = self.held()
        try:
            return connect_inside(namespace, port, seconds)
        finally:
            os.close(namespace)

    def close(self) -> None:
        """Closes the handle on the namespace, which ends with QEMU."""
        with self._lock:
            namespace, self._namespace = self._namespace, None
        if namespace is not None:
            os.close(namespace)
        self.shut()

    @property
    def is_held(self) -> bool:
        """Whether the namespace is open."""
        return self._namespace is not None

    def held(self) -> int:
        """Returns a copy of the namespace's descriptor.

        Raises:
            OSError: The machine has ended.
        """
        with self._lock:
            if self._namespace is None:
                raise OSError("the machine's network is gone")
            return os.dup(self._namespace)
