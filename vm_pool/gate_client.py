"""A client's connection through a gate: sends the token first, and uses TLS if the gate is on another machine."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from vm_pool.gate_login import line_of
from vm_pool.gate_tls import client_context, hash_of
from vm_pool.states import Endpoint

CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Dialled:
    """A connection to a gate on which nothing was sent yet."""

    socket: socket.socket
    certificate: str
    """The hash of the certificate that the gate must have; empty: it does not use TLS."""
    first: bytes
    """What must be sent first."""


def dial(endpoint: Endpoint, purpose: str) -> Dialled:
    """Connects to a gate, or to a VM without one.

    Args:
        endpoint: As a lease has it.
        purpose: One of the endpoint's ports: ``control``, ``chromium``, ``vnc``, ``vlc`` or ``attest``.

    Raises:
        OSError: Nothing listens there.
    """
    place = (endpoint.address, endpoint.ports[purpose])
    connection = socket.create_connection(place, timeout=CONNECT_SECONDS)
    return Dialled(connection, endpoint.certificate, line_of(endpoint.token) if endpoint.token else b"")


def connect(endpoint: Endpoint, purpose: str) -> socket.socket:
    """Returns a connection through a gate, as a blocking socket that is ready for use.

    Args:
        endpoint: As a lease has it.
        purpose: One of the endpoint's ports: ``control``, ``chromium``, ``vnc``, ``vlc`` or ``attest``.

    Raises:
        OSError: Nothing listens there, or the gate is not the one that the lease names.
    """
    dialled = dial(endpoint, purpose)
    connection = dialled.socket
    try:
        if dialled.certificate:
            connection = client_context().wrap_socket(connection)
            if hash_of(connection.getpeercert(binary_form=True)) != dialled.certificate:
                raise ConnectionRefusedError("the gate has another certificate than its lease says")
        if dialled.first:
            connection.sendall(dialled.first)
    except BaseException:
        connection.close()
        raise
    return connection
