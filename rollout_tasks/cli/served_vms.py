"""The VMs of a program that serves desktops over HTTP: started and stopped with it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout_tasks.config import RunConfig
from rollout_tasks.runs import preflight

if TYPE_CHECKING:
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

PARTS = ("data", "env_mode", "limits", "vm", "desktop", "num_rollouts", "priority", "save_results", "output_dir")
"""The options of a run that mean something where desktops are served: whoever uses them has the agent and the model."""
_CONNECTIONS = 512
"""Connections of clients that have no session, or several for one."""
_CONNECTIONS_OF_SESSION = 96
"""Calls that wait, WebSockets, and connections to ports of the desktop."""


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


def most_connections(sessions: int) -> int:
    """Returns how many connections a program may have that serves so many sessions at a time."""
    return _CONNECTIONS + _CONNECTIONS_OF_SESSION * sessions
