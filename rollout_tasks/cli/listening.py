"""What the commands that serve over HTTP say about the address that they listen at."""

from __future__ import annotations

import logging
import os
import socket

from rollout_tasks.errors import UserError

logger = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    return host in _LOOPBACK


def warn_without_tls(host: str) -> None:
    """Says so if other machines reach the address: what goes over it can be read on the way."""
    if not is_loopback(host):
        logger.warning("it listens at %s without TLS: put a proxy with TLS in front of it", host)


def listener(host: str, port: int) -> socket.socket:
    """Returns a socket that listens.

    Raises:
        UserError: It cannot.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
        # Its connections inherit it: asyncio sets it itself for other kinds of listeners only, and without it a reply's second
        # piece waits 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise UserError(f"--host {host}, --port {port}: cannot listen there: {why}") from error


def url_of(listening: socket.socket) -> str:
    """Returns the address of a socket that listens, as ``http://HOST:PORT``."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
