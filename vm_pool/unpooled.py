"""A VM of one's own, without a pool: booted for one use and stopped after it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from vm_pool.gate import Gates
from vm_pool.gate_login import token_of
from vm_pool.providers.base import Provider, connect, purposes
from vm_pool.states import Endpoint


@dataclass(frozen=True, slots=True)
class UnpooledVM:
    """The VM as its user sees it; offers what a `Lease` does."""

    vm_id: str
    endpoint: Endpoint
    fence: int = 0
    """There is no lease, so there is nothing to count."""

    @property
    def address(self) -> str:
        """Host name or IP address to connect to."""
        return self.endpoint.address

    @property
    def ports(self) -> Mapping[str, int]:
        """Port by purpose: ``control``, ``chromium``, ``vnc``, ``vlc``, ``attest``."""
        return self.endpoint.ports

    @property
    def ended_early(self) -> bool:
        """Nobody else can have it: never."""
        return False

    def check(self) -> None:
        """Nobody else can have it: always passes."""


@contextmanager
def unpooled_vm(provider: Provider, vm_id: str) -> Iterator[UnpooledVM]:
    """Boots and checks a VM, and stops it at the end whatever happened. Its ports are reached as those of a lent VM are.

    Args:
        provider: Where it comes from.
        vm_id: ``<owner>-<number>``.

    Raises:
        Exception: Whatever the provider raises when the VM does not come up.
    """
    with ExitStack() as ends:
        ends.callback(provider.stop, vm_id)
        provider.reap_leftovers(vm_id)  # no host has this name: ends what nobody uses any more
        endpoint = provider.boot(vm_id)
        provider.check(vm_id)
        if endpoint.ports:
            key = secrets.token_bytes(32)
            gates = Gates(key=key)
            ends.callback(gates.close)
            gate = gates.open(purposes(provider, endpoint), lambda purpose: connect(provider, vm_id, purpose, endpoint))
            ends.callback(gate.close)
            yield UnpooledVM(vm_id, replace(gate.endpoint, token=token_of(key, gate.endpoint.gate)))
        else:
            yield UnpooledVM(vm_id, endpoint)
