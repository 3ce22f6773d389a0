"""Reaching a desktop whose network has no link: by stepping into its network namespace."""

from __future__ import annotations

import ctypes
import os
import socket
import threading

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def connect_inside(namespace: int, port: int, seconds: float) -> socket.socket:
    """Connects to a port of a network namespace's loopback. A socket stays in the namespace it was made in.

    Args:
        namespace: A descriptor of it.
        port: TCP port.
        seconds: How long connecting may take.

    Raises:
        OSError: The namespace may not be entered, or nothing listens there.
    """
    outcome: list[socket.socket | OSError] = []

    def step_in() -> None:
        try:
            outcome.append(_connect(namespace, port, seconds))
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=step_in, name=f"connects to port {port} of a desktop", daemon=True)
    thread.start()  # a thread of its own, since it never comes back to the host's namespace
    thread.join()
    if isinstance(outcome[0], OSError):
        raise outcome[0]
    return outcome[0]


def _connect(namespace: int, port: int, seconds: float) -> socket.socket:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter the desktop's network: {os.strerror(number)}")
    return socket.create_connection(("127.0.0.1", port), timeout=seconds)
