"""A VM without a pool: booted for one use and stopped after it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from vm_pool.errors import VMsInUse
from vm_pool.gate import Gates
from vm_pool.gate_login import token_of
from vm_pool.providers.base import Provider, checked_endpoint, connect, purposes
from vm_pool.states import Endpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnpooledVM:
    """A VM without a lease, for code that otherwise uses a `Lease`."""

    vm_id: str
    endpoint: Endpoint
    fence: int = 0
    """Always 0: without a lease, there is nothing to count."""

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
        """Always False: no other holder can have the VM."""
        return False

    def check(self) -> None:
        """Always passes: no other holder can have the VM."""


@contextmanager
def unpooled_vm(provider: Provider, vm_id: str) -> Iterator[UnpooledVM]:
    """Boots and checks a VM, and stops it at the end in any case. Its ports are reached like those of a leased VM.

    An end that fails is only logged: it changes nothing of what was done with the VM, or of why it did not start.

    Args:
        provider: Boots, checks and stops it.
        vm_id: ``<owner>-<number>``.

    Raises:
        Exception: Any error of the provider when the VM does not start.
    """
    with ExitStack() as ends:
        ends.callback(_end, vm_id, "it may still run: it could not be stopped", lambda: provider.stop(vm_id))
        _reap_leftovers(provider, vm_id)
        endpoint = checked_endpoint(provider.boot(vm_id), provider, "boot")
        provider.check(vm_id)
        if endpoint.ports:
            key = secrets.token_bytes(32)
            gates = Gates(key=key)
            ends.callback(_end, vm_id, "its gate's thread did not end", gates.close)
            gate = gates.open(purposes(provider, endpoint), lambda purpose: connect(provider, vm_id, purpose, endpoint))
            ends.callback(_end, vm_id, "its gate did not close", gate.close)
            yield UnpooledVM(vm_id, replace(gate.endpoint, token=token_of(key, gate.endpoint.gate)))
        else:
            yield UnpooledVM(vm_id, endpoint)


def _reap_leftovers(provider: Provider, vm_id: str) -> None:
    """Ends abandoned VMs: no host has the name of this one."""
    try:
        provider.reap_leftovers(vm_id)
    except VMsInUse:
        raise
    except Exception as error:  # noqa: BLE001 (the border to providers: this VM may start all the same)
        log.warning("%s: what others left was not ended: %s: %s", vm_id, type(error).__name__, error)


def _end(vm_id: str, otherwise: str, end: Callable[[], None]) -> None:
    try:
        end()
    except Exception:  # the boundary to providers: the rest must still be ended
        log.exception("%s: %s", vm_id, otherwise)
