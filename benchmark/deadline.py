"""A time limit for a whole HTTP request: connecting, sending, and the answer's head and body.

httpcore, with which httpx2 sends, counts a timeout anew for every piece. Without this, an endpoint that goes on sending
single bytes or interim answers (HTTP 1xx) would hold whoever asked it for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

    import httpcore2
    import httpx2

_PIECE = 1 << 16
"""Bytes that are written at a time: of more, the receiver could take a little now and then."""


class TooSlowError(TimeoutError):
    """A request that is not answered in time."""


class Deadline(float):
    """A timeout, in seconds, that counts from when it was made. Needs a client from `with_deadlines`."""

    _end: float

    def __new__(cls, seconds: float) -> Deadline:
        """Begins to count."""
        self = super().__new__(cls, seconds)
        self._end = time.monotonic() + seconds
        return self

    def left(self) -> float:
        """Returns the seconds that are left.

        Raises:
            TooSlowError: There are none.
        """
        if (left := self._end - time.monotonic()) <= 0:
            raise TooSlowError
        return left


def with_deadlines(client: httpx2.Client) -> httpx2.Client:
    """Returns the client, which from now on keeps a timeout that is a `Deadline`."""
    for transport in (client._transport, *client._mounts.values()):
        keep_deadlines(transport)
    return client


def keep_deadlines(transport: object) -> None:
    """Has a transport of httpx or httpx2 keep a timeout that is a `Deadline` from now on."""
    pool: Any = getattr(transport, "_pool", None)
    if pool is not None:
        pool._network_backend = _Backend(pool._network_backend)  # there is no argument for it


class _Backend:
    """Makes connections that keep deadlines, in the form of `httpcore2.NetworkBackend`."""

    def __init__(self, backend: httpcore2.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, **options: Any
    ) -> _Stream:
        if not isinstance(timeout, Deadline):
            return _Stream(self._backend.connect_tcp(host, port, timeout, local_address, **options))
        # The resolver knows no timeout, and each of a name's addresses would have the whole of it.
        return _within(
            timeout, lambda: _Stream(self._backend.connect_tcp(host, port, timeout.left(), local_address, **options))
        )

    def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> _Stream:
        return _Stream(self._backend.connect_unix_socket(path, _left(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream:
    """A connection that keeps deadlines, in the form of `httpcore2.NetworkStream`."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for piece in _pieces(buffer):
            self._stream.write(piece, _left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


def _within(deadline: Deadline, connect: Callable[[], _Stream]) -> _Stream:
    """Returns a new connection; one that comes too late is closed.

    Raises:
        TooSlowError: It does not come in time.
        Exception: What `connect` raises.
    """
    made: Future[_Stream] = Future()

    def run() -> None:
        try:
            made.set_result(connect())
        except BaseException as error:  # noqa: BLE001 (it is raised where the connection is waited for)
            made.set_exception(error)

    threading.Thread(target=run, name="connect", daemon=True).start()
    finished = False
    try:
        finished = bool(wait([made], deadline.left()).done)
    finally:  # also where an alarm ends the waiting
        if not finished:
            made.add_done_callback(_close_late)
    if not finished:
        raise TooSlowError
    return made.result()


def _close_late(made: Future[_Stream]) -> None:
    if made.exception() is None:
        made.result().close()


def _left(timeout: float | None) -> float | None:
    return timeout.left() if isinstance(timeout, Deadline) else timeout


def _pieces(buffer: bytes) -> Iterable[bytes]:
    if len(buffer) <= _PIECE:
        return (buffer,)
    return (buffer[at : at + _PIECE] for at in range(0, len(buffer), _PIECE))
