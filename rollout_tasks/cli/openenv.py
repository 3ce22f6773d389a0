"""`rollouts openenv`: serves items of a benchmark on leased desktops to trainers that speak OpenEnv."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmark.items import Item
from rollout_tasks.cli import listening, program, run_actions
from rollout_tasks.cli.http_server import running_server, serve_until
from rollout_tasks.cli.run_options import aliases, with_config_options
from rollout_tasks.cli.runs import ConfigFile, ProviderOption, resolved_options
from rollout_tasks.cli.served_vms import (
    PARTS,
    Embedded,
    TrustTasks,
    allow_many_files,
    most_connections,
    served_vms,
)
from rollout_tasks.cli.submission_progress import submitting
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.runs import preflight
from rollout_tasks.settings import settings

if TYPE_CHECKING:
    from rollout_tasks.embedded.services import EmbeddedServices

logger = logging.getLogger(__name__)
application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

NOT_INSTALLED = "openenv is not installed here: uv pip install openenv"
FOLDER = "sessions"
"""Below the output folder: a folder for each session."""


@application.command("openenv", context_settings=program.any_spelling(aliases()))
@partial(with_config_options, parts=PARTS)
def openenv(
    options: dict[str, Any],
    config: ConfigFile = None,
    provider_option: ProviderOption = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = 8000,
    session_timeout: Annotated[
        float,
        typer.Option(
            "--session-timeout", min=1, max=86_400, help="Seconds without a call after which an episode ends."
        ),
    ] = 600.0,
    embedded: Embedded = None,
    trust_tasks: TrustTasks = False,
) -> int:
    """Serve a benchmark's items on leased desktops to TRL, verifiers and others until Ctrl-C or SIGTERM.

    Clients need one of the tokens in ROLLOUT_SERVICE_TOKENS. For example:

    [bold]rollouts openenv --data-path evaluation_examples --provider-name local[/bold]
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    _check_installed()
    given = settings().service_tokens
    tokens = ServiceTokens(given.get_secret_value() if given is not None else "")
    if trust_tasks:
        run_actions.trust_tasks(embedded=True)
    resolved = resolved_options(options, config, provider_option)
    here = run_actions.is_here(embedded)
    with submitting() as count:
        submission, environments, _ = run_actions.prepared(resolved, count, here=here, show=False)
    items = submission.items
    preflight.check_here(resolved, (), environments)  # sessions are played here, wherever their VMs are
    stop = program.stopped_by_signals()
    needed = resolved.vm.use_pool and preflight.needs_vm(resolved, items)
    vms = served_vms(resolved, needed=needed, here=here, logs=resolved.output_dir / FOLDER / "logs")
    with listening.listener(host, port) as listener, vms as services:
        listening.warn_without_tls(host)
        _serve(resolved, items, tokens, listener, session_timeout, services, stop)
    return program.DONE


def _check_installed() -> None:
    try:
        import openenv.core  # noqa: F401 - here, because the package is optional
    except ImportError as error:
        raise UserError(NOT_INSTALLED) from error


def _serve(
    config: RunConfig,
    items: Sequence[Item],
    tokens: ServiceTokens,
    listener: Any,
    session_timeout: float,
    services: EmbeddedServices | None,
    stop: threading.Event,
) -> None:
    # Here, because it is slow to import.
    from rollout_tasks.service.desktop_sessions import DesktopSessions

    # Here, because it imports an optional package.
    from rollout_tasks.service.openenv import served

    allow_many_files()
    with ExitStack() as ends:
        folder = config.output_dir / FOLDER
        sessions = DesktopSessions(config, items, folder, most=config.num_rollouts, silent_seconds=session_timeout)
        ends.callback(sessions.close)
        forgotten = config.vm.wait_seconds + 3 * config.limits.max_seconds + session_timeout
        application = served(sessions, tokens, session_timeout=forgotten)
        most = most_connections(sessions.most)
        server = ends.enter_context(running_server(application, listener, most_connections=most))
        where = listening.url_of(listener)
        logger.info("serving %d items at %s, %d at a time; records: %s", len(items), where, sessions.most, folder)
        serve_until(stop, server, services)


def main() -> None:
    """Runs the command."""
    program.run(application)


if __name__ == "__main__":
    main()
