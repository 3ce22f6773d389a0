"""Internet access of a QEMU machine, where its policy allows any: QEMU's user network, led to a relay.

QEMU's user network makes the guest's connections as QEMU's own. In the namespace they meet the same setup as a
container's: an interface that is connected to nothing, and rules that hand them to the relay.
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
"""QEMU asks the name server in that file."""


class InternetAccess(PrivateNetwork):
    """One machine's internet access. It is closed at first, and must be closed before the machine gets another holder.

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
        """See `PrivateNetwork`; also writes a file into the machine's folder."""
        names = folder / _NAMES
        names.write_text(f"nameserver {NAME_SERVER}\n", encoding="utf-8")
        names.chmod(0o644)
        return ["unshare", "--net", "--mount", "--propagation", "slave", "sh", "-c", _START, str(folder), *command]

    def enter(self, keeper: int) -> None:
        """See `PrivateNetwork`; gives the namespace its interface.

        Raises:
            OSError: QEMU has ended.
            RuntimeError: It is not in its own namespace, or the kernel refuses the interface.
        """
        super().enter(keeper)
        namespace = self.held()
        try:
            make_interface(namespace)
        finally:
            os.close(namespace)

    def open(self) -> None:
        """Opens the guest's internet access.

        Raises:
            OSError: The machine has ended.
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
        """Closes all connections; new ones are refused. May be repeated."""
        with self._outlets:
            outlet, self._outlet = self._outlet, None
        if outlet is not None:
            outlet.close()
