"""Running code in another network namespace, such as a desktop's: a socket stays in the namespace it was made in."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from fcntl import ioctl
from functools import lru_cache
from typing import TypeVar

_CLONE_NEWNET = 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_TRIES = 10
_libc = ctypes.CDLL(None, use_errno=True)
_Made = TypeVar("_Made")


def inside(namespace: int, make: Callable[[], _Made]) -> _Made:
    """Runs a function inside a network namespace, in its own thread, which cannot return to the host's.

    Args:
        namespace: A file descriptor of it.
        make: The function; must have its own timeout.

    Raises:
        OSError: The namespace cannot be entered, or any error of `make`.
    """
    outcome: list[_Made] = []
    failure: list[BaseException] = []

    def step_in() -> None:
        try:
            if _libc.setns(namespace, _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"cannot enter the desktop's network: {os.strerror(number)}")
            outcome.append(make())
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            failure.append(error)

    thread = threading.Thread(target=step_in, name="inside a desktop's network", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def bring_loopback_up() -> None:
    """Turns on the loopback of the caller's network namespace; in a new one it is off.

    Raises:
        OSError: The caller is not permitted.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", ioctl(any_socket, _GET_FLAGS, request), 16)
        ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


@lru_cache(maxsize=1)
def can_make_namespaces() -> bool:
    """Whether this process may give the programs that it starts their own network."""
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)  # noqa: S607
    return done.returncode == 0


def connect_inside(namespace: int, port: int, seconds: float, *, as_root: bool = False) -> socket.socket:
    """Connects to a port of a network namespace's loopback.

    Args:
        namespace: A file descriptor of it.
        port: TCP port.
        seconds: How long connecting may take.
        as_root: From a port that only root may use, so that a server there can tell it from unprivileged programs.

    Raises:
        OSError: The namespace cannot be entered, or nothing listens there.
    """
    connect = _connect_from_reserved if as_root else socket.create_connection
    return inside(namespace, lambda: connect(("127.0.0.1", port), seconds))


def _connect_from_reserved(address: tuple[str, int], seconds: float) -> socket.socket:
    """Connects from a random loopback address and reserved port, so that two connections hardly ever collide."""
    for tries_left in reversed(range(_TRIES)):
        host = ".".join(["127", *(str(secrets.randbelow(254) + 1) for _ in range(3))])
        try:
            return socket.create_connection(address, seconds, source_address=(host, secrets.randbelow(1023) + 1))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL) or not tries_left:
                raise
    raise AssertionError
