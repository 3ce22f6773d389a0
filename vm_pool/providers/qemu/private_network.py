"""A network for one QEMU: the ports that it forwards are on a loopback of its own, which nobody else on the machine reaches.

Making one takes root. Without, a machine's ports are on this machine's loopback, without a login.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from vm_pool.namespaces import bring_loopback_up, connect_inside, inside


class PrivateNetwork:
    """One machine's, which leads nowhere."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._namespace: int | None = None

    def lead_through(self, folder: Path, command: list[str]) -> list[str]:  # noqa: ARG002 (for those that need it)
        """The command that runs another one in a namespace of its own.

        Args:
            folder: The machine's.
            command: QEMU's.
        """
        return ["unshare", "--net", *command]

    def enter(self, keeper: int) -> None:
        """Takes hold of the namespace.

        Args:
            keeper: The process whose only child is QEMU.

        Raises:
            OSError: QEMU has ended.
            RuntimeError: It is not in a namespace of its own.
        """
        qemu = Path(f"/proc/{keeper}/task/{keeper}/children").read_text(encoding="utf-8").split()
        if len(qemu) != 1:
            raise RuntimeError("QEMU has ended")
        namespace = os.open(f"/proc/{qemu[0]}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with self._guard:
            self._namespace = namespace
        if os.path.samestat(os.fstat(namespace), Path("/proc/self/ns/net").stat()):
            raise RuntimeError("QEMU is not in a network namespace of its own")
        inside(namespace, bring_loopback_up)

    def open(self) -> None:
        """There is no way out to let the guest through."""

    def shut(self) -> None:
        """There is none to shut."""

    def connect(self, port: int, seconds: float) -> socket.socket:
        """A connection to a port that QEMU forwards.

        Raises:
            OSError: Nothing listens there, or the machine was put away.
        """
        namespace = self.held()
        try:
            return connect_inside(namespace, port, seconds)
        finally:
            os.close(namespace)

    def close(self) -> None:
        """Lets go of the namespace, which ends with QEMU."""
        with self._guard:
            namespace, self._namespace = self._namespace, None
        if namespace is not None:
            os.close(namespace)
        self.shut()

    @property
    def is_held(self) -> bool:
        """Whether the machine was entered and not put away."""
        return self._namespace is not None

    def held(self) -> int:
        """A copy of the namespace's descriptor.

        Raises:
            OSError: The machine was put away.
        """
        with self._guard:
            if self._namespace is None:
                raise OSError("the machine's network is gone")
            return os.dup(self._namespace)
