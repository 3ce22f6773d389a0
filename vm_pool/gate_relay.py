"""A port of this machine that leads to a VM behind a gate, for programs that cannot log in at gates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vm_pool.gate import Gates
from vm_pool.gate_client import dial
from vm_pool.states import Endpoint


@contextmanager
def relayed(endpoint: Endpoint) -> Iterator[Endpoint]:
    """Yields an endpoint at an IPv4 address, for programs that know neither tokens nor IPv6, while the context lasts.

    Every program on this machine can reach it without a login, but no web page from elsewhere (see `OriginCheck`).

    Args:
        endpoint: As a lease has it.

    Raises:
        GateError: No ports are left.
    """
    if not endpoint.token and not endpoint.certificate and ":" not in endpoint.address:
        yield endpoint
        return
    gates = Gates(refuse_pages=True)
    gate = gates.open(list(endpoint.ports), lambda purpose: dial(endpoint, purpose))
    try:
        yield gate.endpoint
    finally:
        gate.close()
        gates.close()
