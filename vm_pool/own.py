"""A VM of one's own, without a pool: booted for one use and stopped after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from vm_pool.providers.base import Provider
from vm_pool.states import Endpoint


@dataclass(frozen=True, slots=True)
class OwnVM:
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
        """Port by purpose: ``control``, ``chromium``, ``vnc``, ``vlc``."""
        return self.endpoint.ports

    def check(self) -> None:
        """Nobody else can have it: always passes."""


@contextmanager
def own_vm(provider: Provider, vm_id: str) -> Iterator[OwnVM]:
    """Boots and checks a VM, and stops it at the end whatever happened.

    Args:
        provider: Where it comes from.
        vm_id: ``<owner>-<number>``; `Provider.reap_leftovers` with the owner's name ends what a kill left behind.

    Raises:
        Exception: Whatever the provider raises when the VM does not come up.
    """
    try:
        endpoint = provider.boot(vm_id)
        provider.check(vm_id)
        yield OwnVM(vm_id, endpoint)
    finally:
        provider.stop(vm_id)
