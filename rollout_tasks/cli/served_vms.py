"""The VMs of a program that serves desktops over HTTP, and its server: started together, stopped together."""

from __future__ import annotations

import logging
import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollout_tasks.config import RunConfig
from rollout_tasks.errors import ServiceEnded
from rollout_tasks.runs import preflight
from rollout_tasks.settings import settings

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

    from rollout_tasks.embedded.services import EmbeddedServices

Embedded = Annotated[
    bool | None,
    typer.Option(
        "--embedded/--no-embedded", help="Start VMs here, or lease those of a pool. Default: here without REDIS_URL."
    ),
]
TrustTasks = Annotated[
    bool,
    typer.Option("--trust-tasks", help="Run desktop tasks' setup and evaluation in this program's own processes."),
]

_LOOK_SECONDS = 1.0
_STOP_SECONDS = 15
LARGEST_MESSAGE = 1 << 20
"""Bytes of one message to a WebSocket."""


@contextmanager
def served_vms(config: RunConfig, *, needed: bool, here: bool, logs: Path) -> Iterator[EmbeddedServices | None]:
    """Provides VMs: of a pool, which is started if there is none; yields what was started.

    Args:
        config: Says which pool, and what its VMs are.
        needed: Whether any VM of a pool is.
        here: Whether the pool starts here, with a Valkey of its own; else it is that of the configured Redis.
        logs: The folder for the logs of what starts here.
    """
    if not needed:
        yield None
        return
    if not here:
        from rollout_tasks.redis_client import checked_client  # here, because it imports Redis's client

        with checked_client() as client:
            preflight.check_pool(config, client)
        yield None
        return
    # Here, because servers of a pool elsewhere need none of it.
    from rollout_tasks.embedded.services import EmbeddedServices, WorkerVMs
    from rollout_tasks.vm_options import provider_options

    with ExitStack() as ends:
        services = EmbeddedServices(logs)
        ends.callback(services.stop)
        services.start_valkey()
        options = provider_options(config)
        services.start_vm_host(WorkerVMs(config.vm.num_vms, config.vm.provider_name, config.vm.pool, options))
        yield services


def allow_many_files() -> None:
    """Lets this process open as many files as it may: each session has connections and a process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def running_server(application: ASGIApp, listener: socket.socket) -> Iterator[threading.Thread]:
    """Serves an ASGI application while the context lasts; yields the thread that does."""
    import uvicorn  # here, because wrong input needs none of it

    # A client that is cut off is noticed within a lease's time, as a worker is.
    ping = max(1.0, settings().lease_ttl / 3)
    options: dict[str, Any] = {"ws_ping_interval": ping, "ws_ping_timeout": ping}
    # A few thousand compressed bytes would be some megabytes, and many such messages come at once.
    options |= {"ws_max_size": LARGEST_MESSAGE, "ws_max_queue": 1, "ws_per_message_deflate": False}
    logging.getLogger("uvicorn.error").addFilter(_is_not_of_a_socket)
    server = uvicorn.Server(
        uvicorn.Config(
            application, log_config=None, access_log=False, timeout_graceful_shutdown=_STOP_SECONDS, **options
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        server.should_exit = True
        thread.join(_STOP_SECONDS)


def _is_not_of_a_socket(record: logging.LogRecord) -> bool:
    """Leaves out what uvicorn says of each WebSocket: with its address, in which older clients send their token."""
    return "WebSocket" not in str(record.msg)


def serve_until(stop: threading.Event, server: threading.Thread, services: EmbeddedServices | None) -> None:
    """Waits until the program is to stop.

    Raises:
        ServiceEnded: The server, or what was started for it, ended by itself.
    """
    while not stop.wait(_LOOK_SECONDS):
        if services is not None:
            services.check()
        if not server.is_alive():
            raise ServiceEnded("the HTTP server ended by itself")
