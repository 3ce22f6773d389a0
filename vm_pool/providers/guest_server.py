"""A client for the guest's HTTP server: a desktop's health, and screenshots with their size."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

PORTS = {"control": 5000, "chromium": 9222, "vnc": 8006, "vlc": 8080}
"""The guest's ports by purpose."""

Connect = Callable[[], socket.socket]
"""Makes a new connection to the guest's control port."""

_PNG_BEGIN = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_PNG_END = b"IEND\xaeB`\x82"
_LONGEST_REPLY = 64 * 1024 * 1024


class DesktopUnwell(RuntimeError):
    """A desktop does not answer as it should; one sentence names the request and the answer."""


@dataclass(frozen=True, slots=True)
class Health:
    """The guest's report on itself."""

    screen: tuple[int, int]
    """Pixels."""
    processes: tuple[str, ...]
    """Names of the session's processes, sorted; one for each process."""
    windows: tuple[str, ...]
    """Titles of the open windows."""


def health(connect: Connect, seconds: float) -> Health:
    """Requests the guest's health.

    Raises:
        DesktopUnwell: It does not answer in time, or reports a failure.
    """
    body = _get(connect, "/health", seconds)
    try:
        said = json.loads(body)
        if not said["ok"]:
            raise DesktopUnwell(f"GET /health: {said['failed']}")
        width, height = said["screen"]
        return Health((int(width), int(height)), tuple(map(str, said["processes"])), tuple(map(str, said["windows"])))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DesktopUnwell(f"GET /health: the answer is not as agreed: {body[:100]!r}") from error


def screenshot(connect: Connect, seconds: float, *, without_clock: bool = False) -> tuple[bytes, tuple[int, int]]:
    """Takes a screenshot.

    Args:
        connect: Makes a connection to the guest's server.
        seconds: How long it may take.
        without_clock: Leaves out the rows that change by themselves, where this project's own guest has any.

    Returns:
        The PNG, and its width and height in pixels.

    Raises:
        DesktopUnwell: None came in time, or what came is not a complete PNG.
    """
    body = _get(connect, "/screenshot?without=clock" if without_clock else "/screenshot", seconds)
    if not body.startswith(_PNG_BEGIN) or not body.endswith(_PNG_END):
        raise DesktopUnwell(f"GET /screenshot: the {len(body)} bytes that came are not a whole PNG")
    width, height = struct.unpack_from(">II", body, len(_PNG_BEGIN))
    return body, (width, height)


def picture_hash(png: bytes) -> str:
    """Returns a hash of a PNG's picture: the same for the same picture, if the same program encoded it."""
    digest = hashlib.sha256()
    at = 8
    while at + 8 <= len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        if kind == b"IDAT":
            digest.update(png[at + 8 : at + 8 + length])
        at += length + 12
    return digest.hexdigest()[:16]


def _get(connect: Connect, path: str, seconds: float) -> bytes:
    """Sends one GET request; returns or raises in time, however slowly the bytes come."""
    deadline = time.monotonic() + seconds
    try:
        with connect() as connection:
            connection.settimeout(seconds)
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            reply = bytearray()
            while data := connection.recv(1 << 18):
                reply += data
                left = deadline - time.monotonic()
                if left <= 0 or len(reply) > _LONGEST_REPLY:
                    raise TimeoutError
                connection.settimeout(left)
    except TimeoutError as error:
        raise DesktopUnwell(f"GET {path}: no whole answer within {seconds:.0f} s") from error
    except OSError as error:
        raise DesktopUnwell(f"GET {path}: {error.strerror or error}") from error
    head, _, body = bytes(reply).partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or status[1] != b"200":
        raise DesktopUnwell(f"GET {path}: the answer is {head[:100]!r}")
    return body
