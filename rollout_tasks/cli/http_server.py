"""The HTTP server of commands that serve an ASGI application, in a thread, with limits on what unknown clients can take up."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rollout_tasks.errors import ServiceEnded
from rollout_tasks.settings import settings

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

    from rollout_tasks.embedded.services import EmbeddedServices

_LOOK_SECONDS = 1.0
_STOP_SECONDS = 15
_TURN_SECONDS = 0.0005
"""How long a thread may keep the others waiting for Python's lock; its own 5 ms would be added at each handover of a call."""
LARGEST_MESSAGE = 1 << 20
"""Bytes of one message to a WebSocket."""


@contextmanager
def running_server(
    application: ASGIApp, listener: socket.socket, *, most_connections: int
) -> Iterator[threading.Thread]:
    """Serves an ASGI application while the context lasts; yields the thread that does.

    The program serves from then on: what it has imported is kept from the garbage collector, and threads take shorter turns.

    Args:
        application: What is served.
        listener: Where; it listens already.
        most_connections: Connections at a time, those of WebSockets included; more are answered 503.
    """
    import uvicorn  # here, because wrong input needs none of it

    from rollout_tasks.http_protocol import BoundedProtocol  # here, as it is

    # A client that is cut off is noticed within a lease's time, as a worker is.
    ping = max(1.0, settings().lease_ttl / 3)
    sockets: dict[str, Any] = {"ws": _socket_protocol(), "ws_ping_interval": ping, "ws_ping_timeout": ping}
    # A few thousand compressed bytes would be some megabytes, and many such messages come at once.
    sockets |= {"ws_max_size": LARGEST_MESSAGE, "ws_per_message_deflate": False}
    logging.getLogger("uvicorn.error").addFilter(_is_not_of_a_socket)
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            http=BoundedProtocol,
            log_config=None,
            access_log=False,
            limit_concurrency=most_connections,
            timeout_graceful_shutdown=_STOP_SECONDS,
            **sockets,
        )
    )
    sys.setswitchinterval(_TURN_SECONDS)
    gc.collect()
    gc.freeze()  # walking all that was imported would stop every call for a tenth of a second, now and then
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        server.should_exit = True
        thread.join(_STOP_SECONDS)


def _socket_protocol() -> Any:
    try:
        from rollout_tasks.http_services.socket_protocol import BoundedSocket  # here, because websockets is optional
    except ImportError:
        return "none"
    return BoundedSocket


def serve_until(stop: threading.Event, server: threading.Thread, services: EmbeddedServices | None = None) -> None:
    """Waits until the program is to stop.

    Raises:
        ServiceEnded: The server, or what was started for it, ended by itself.
    """
    while not stop.wait(_LOOK_SECONDS):
        if services is not None:
            services.check()
        if not server.is_alive():
            raise ServiceEnded("the HTTP server ended by itself")


def _is_not_of_a_socket(record: logging.LogRecord) -> bool:
    """Leaves out what uvicorn says of each WebSocket: with its address, in which older clients send their token."""
    return "WebSocket" not in str(record.msg)
