"""A machine's way to the internet, where it has one: QEMU runs in a network namespace of its own, which leads to a relay.

QEMU's user network makes the guest's connections as connections of QEMU's own. In the namespace they meet what a container's do:
an interface that leads nowhere, and rules that hand them to the relay.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from vm_pool.egress.exits import NAME_SERVER, make_exit, make_interface
from vm_pool.egress.policy import NetworkPolicy
from vm_pool.egress.relay import Outlet, Relay
from vm_pool.namespaces import connect_inside

_NAMES = "resolv.conf"
_START = f'mount --bind "$0/{_NAMES}" /etc/resolv.conf && exec "$@"'
"""QEMU asks the name server that is written there."""


class WayOut:
    """One machine's. It is shut at first, and must be shut before the machine goes to somebody else.

    Args:
        relay: Makes the connections.
        policy: Where they may go.
    """

    def __init__(self, relay: Relay, policy: NetworkPolicy) -> None:
        self._relay = relay
        self._policy = policy
        self._guard = threading.Lock()
        self._namespace: int | None = None
        self._outlet: Outlet | None = None

    def lead_through(self, folder: Path, command: list[str]) -> list[str]:
        """The command that runs another one in namespaces of its own.

        Args:
            folder: The machine's; gets a file.
            command: QEMU's.
        """
        names = folder / _NAMES
        names.write_text(f"nameserver {NAME_SERVER}\n")
        names.chmod(0o644)
        return ["unshare", "--net", "--mount", "--propagation", "slave", "sh", "-c", _START, str(folder), *command]

    def enter(self, keeper: int) -> None:
        """Takes hold of the namespace, and gives it its interface.

        Args:
            keeper: The process whose only child is QEMU.

        Raises:
            OSError: QEMU has ended.
            RuntimeError: It is not in a namespace of its own, or the kernel refuses the interface.
        """
        qemu = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        if len(qemu) != 1:
            raise RuntimeError("QEMU has ended")
        namespace = os.open(f"/proc/{qemu[0]}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with self._guard:
            self._namespace = namespace
        if os.path.samestat(os.fstat(namespace), Path("/proc/self/ns/net").stat()):
            raise RuntimeError("QEMU is not in a network namespace of its own")
        make_interface(namespace)

    def open(self) -> None:
        """Lets the guest out.

        Raises:
            OSError: The machine was put away.
            RuntimeError: The kernel refuses the rules.
        """
        namespace = self._held()
        try:
            outlet = self._relay.open(make_exit(namespace), self._policy)
        finally:
            os.close(namespace)
        with self._guard:
            if self._namespace is not None:
                self._outlet = outlet
                return
        outlet.close()

    def shut(self) -> None:
        """Ends all connections; new ones are refused. Harmless when repeated."""
        with self._guard:
            outlet, self._outlet = self._outlet, None
        if outlet is not None:
            outlet.close()

    def connect(self, port: int, seconds: float) -> socket.socket:
        """A connection to a port that QEMU forwards.

        Raises:
            OSError: Nothing listens there, or the machine was put away.
        """
        namespace = self._held()
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

    def _held(self) -> int:
        """A copy of the descriptor."""
        with self._guard:
            if self._namespace is None:
                raise OSError("the machine's network is gone")
            return os.dup(self._namespace)
