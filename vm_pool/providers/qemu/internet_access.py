"""A machine's way to the internet, where it has one: QEMU's own network, with an exit that leads to a relay.

QEMU's user network makes the guest's connections as connections of QEMU's own. In the namespace they meet what a container's do:
an interface that leads nowhere, and rules that hand them to the relay.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from vm_pool.egress.exits import NAME_SERVER, make_exit, make_interface
from vm_pool.egress.policy import NetworkPolicy
from vm_pool.egress.relay import Outlet, Relay
from vm_pool.providers.qemu.private_network import PrivateNetwork

_NAMES = "resolv.conf"
_START = f'mount --bind "$0/{_NAMES}" /etc/resolv.conf && exec "$@"'
"""QEMU asks the name server that is written there."""


class InternetAccess(PrivateNetwork):
    """One machine's. It is shut at first, and must be shut before the machine goes to somebody else.

    Args:
        relay: Makes the connections.
        policy: Where they may go.
    """

    def __init__(self, relay: Relay, policy: NetworkPolicy) -> None:
        super().__init__()
        self._relay = relay
        self._policy = policy
        self._outlets = threading.Lock()
        self._outlet: Outlet | None = None

    def lead_through(self, folder: Path, command: list[str]) -> list[str]:
        """See `PrivateNetwork`; the machine's folder gets a file."""
        names = folder / _NAMES
        names.write_text(f"nameserver {NAME_SERVER}\n", encoding="utf-8")
        names.chmod(0o644)
        return ["unshare", "--net", "--mount", "--propagation", "slave", "sh", "-c", _START, str(folder), *command]

    def enter(self, keeper: int) -> None:
        """See `PrivateNetwork`; gives the namespace its interface.

        Raises:
            OSError: QEMU has ended.
            RuntimeError: It is not in a namespace of its own, or the kernel refuses the interface.
        """
        super().enter(keeper)
        namespace = self.held()
        try:
            make_interface(namespace)
        finally:
            os.close(namespace)

    def open(self) -> None:
        """Lets the guest out.

        Raises:
            OSError: The machine was put away.
            RuntimeError: The kernel refuses the rules.
        """
        namespace = self.held()
        try:
            outlet = self._relay.open(make_exit(namespace), self._policy)
        finally:
            os.close(namespace)
        with self._outlets:
            if self.is_held:
                self._outlet = outlet
                return
        outlet.close()

    def shut(self) -> None:
        """Ends all connections; new ones are refused. Harmless when repeated."""
        with self._outlets:
            outlet, self._outlet = self._outlet, None
        if outlet is not None:
            outlet.close()
