"""Access to the server: allowed from outside the guest, but not for web pages.

Programs in the guest can do themselves what the server would do for them; they are refused when they connect, so that
they cannot occupy its threads. Requests from a browser are refused wherever it runs.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from errno import EADDRNOTAVAIL, EAGAIN
from http import HTTPStatus

from flask import request

from .problems import Problem

RESERVED_PORTS = 1024
"""Only root may use lower ports; the guest's host uses one when it connects from within the guest's own network."""
_BY_A_BROWSER = ("Origin", "Sec-Fetch-Site")
_HOST = re.compile(r"(?P<name>\[[^\]]*\]|[^:]*)(:[0-9]*)?")
_SENT_AWAY = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"status": "error", "message": "the control server is not for programs in the guest"}\n'
)


class Listener(socket.socket):
    """A listening socket that accepts only connections from outside the guest."""

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accepts a connection; see `socket.socket`.

        Raises:
            BlockingIOError: No connection waits, or one was refused; others are served before the next is accepted.
        """
        connection, address = super().accept()
        if not _is_inside(address):
            return connection, address
        with connection, suppress(OSError):
            connection.setblocking(False)
            connection.send(_SENT_AWAY)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)  # unread data would make the kernel discard the answer
        raise BlockingIOError(EAGAIN, "a program in the guest was sent away")


def refuse_pages() -> None:
    """Refuses requests that a web page can send, even a page whose host name now points to this machine.

    Raises:
        Problem: A web page can have sent the request.
    """
    for name in _BY_A_BROWSER:
        if name in request.headers:
            raise Problem(
                f"the control server is not for web pages: the request has the header {name}", HTTPStatus.FORBIDDEN
            )
    host = request.headers.get("Host", "")
    if not _is_here(host):
        shown = host[:100] or "nothing"
        sentence = (
            f"the control server is reached as localhost or by an IP address: the request names {shown} as its host"
        )
        raise Problem(sentence, HTTPStatus.FORBIDDEN)


def _is_here(host: str) -> bool:
    """Whether a Host header is ``localhost`` or an IP address, not a name that others control."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found["name"]
    if name.lower() == "localhost":
        return True
    try:
        if name.startswith("["):
            ipaddress.IPv6Address(name[1:-1])
        else:
            ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True


def _is_inside(address: tuple[str, int]) -> bool:
    """Whether a connection's other end is a program in the guest without root's rights."""
    host, port = address[:2]
    if port < RESERVED_PORTS:
        return False
    with socket.socket() as here:
        try:
            here.bind((host, 0))
        except OSError as error:
            return error.errno != EADDRNOTAVAIL
    return True
