"""`rollouts desktops`: lends desktops over HTTP to programs that know no Redis, makes their tokens, and shows desktops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmark.items import Item
from rollout_tasks.cli import listening, program, run_actions
from rollout_tasks.cli.desktop_view import view
from rollout_tasks.cli.fitting_tables import Column, FittingTable, table_console
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
from rollout_tasks.http_services.tokens import VARIABLE, ServiceTokens
from rollout_tasks.runs import preflight
from rollout_tasks.settings import settings

if TYPE_CHECKING:
    from rollout_tasks.embedded.services import EmbeddedServices
    from rollout_tasks.http_services.token_store import TokenStore

logger = logging.getLogger(__name__)
application = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, rich_markup_mode="rich"
)
tokens = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
application.add_typer(tokens, name="token", help="Make, list and revoke the tokens of clients.")

FOLDER = "leases"
"""Below the output folder: a folder for each lease."""

RedisUrl = Annotated[str | None, typer.Option("--redis-url", help="Default: REDIS_URL, else this machine's Redis.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables and sentences.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.")]


@application.command("serve", context_settings=program.any_spelling(aliases()))
@partial(with_config_options, parts=PARTS)
def serve(
    options: dict[str, Any],
    config: ConfigFile = None,
    provider_option: ProviderOption = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = 8770,
    ttl: Annotated[
        float,
        typer.Option("--ttl", min=1, max=86_400, help="Seconds of its client's silence after which a lease ends."),
    ] = 60.0,
    allow_help: Annotated[
        bool,
        typer.Option(
            "--allow-help", help="Let people who watch a desktop in a browser use it, too, if its client asks for that."
        ),
    ] = False,
    embedded: Embedded = None,
    trust_tasks: TrustTasks = False,
) -> int:
    """Lend desktops over HTTP until Ctrl-C or SIGTERM.

    Clients need a token: [bold]rollouts desktops token make NAME[/bold] makes one in
    Redis. Those in ROLLOUT_SERVICE_TOKENS are operators', without a quota.
    Without --data-path, clients bring their tasks or take bare desktops:

    [bold]rollouts desktops serve --provider-name local --num-rollouts 20[/bold]
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if trust_tasks:
        run_actions.trust_tasks(embedded=True)
    resolved = resolved_options(options, config, provider_option)
    here = run_actions.is_here(embedded)
    operators = _operators(here)
    items = _items(resolved, here)
    stop = program.stopped_by_signals()
    vms = served_vms(resolved, needed=resolved.vm.use_pool, here=here, logs=resolved.output_dir / FOLDER / "logs")
    with listening.listener(host, port) as listener, vms as services:
        listening.warn_without_tls(host)
        _serve(resolved, items, operators, listener, ttl, services, stop, allow_help=allow_help)
    return program.DONE


application.command("view", context_settings=program.any_spelling())(view)


@tokens.command("make", context_settings=program.any_spelling())
def make(
    name: Name,
    quota: Annotated[
        int, typer.Option("--quota", min=0, help="The most leases that its holder may have at a time.")
    ] = 4,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it: it is shown this once, Redis keeps its digest."""
    token = _store(redis_url).make(name, quota)
    if as_json:
        program.print_json({"name": name, "quota": quota, "token": token})
    else:
        typer.echo(token)


@tokens.command("list", context_settings=program.any_spelling())
def list_tokens(redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """List the holders of tokens, with their quotas."""
    stored = _store(redis_url).all()
    if as_json:
        program.print_json([{"name": one.name, "quota": one.quota, "made": one.made} for one in stored])
        return
    rows = [[one.name, str(one.quota), f"{datetime.fromtimestamp(one.made, UTC):%Y-%m-%d %H:%M}"] for one in stored]
    columns = [Column("name"), Column("quota", right=True), Column("made (UTC)", leaves=1)]
    table_console().print(FittingTable(columns, rows))


@tokens.command("revoke", context_settings=program.any_spelling())
def revoke(name: Name, redis_url: RedisUrl = None) -> None:
    """Make a token worthless; the leases of its holder end within a few seconds."""
    _store(redis_url).revoke(name)
    typer.echo(f"the token of {name} is revoked")


def _store(redis_url: str | None) -> TokenStore:
    from rollout_tasks.http_services.token_store import TokenStore  # here, because it imports Redis's client
    from rollout_tasks.redis_address import checked_redis_url
    from rollout_tasks.redis_client import checked_client

    try:
        return TokenStore(checked_client(None if redis_url is None else checked_redis_url(redis_url)))
    except ValueError as error:
        raise UserError(f"--redis-url: {error}") from error


def _operators(here: bool) -> ServiceTokens | None:
    """Returns the tokens of the environment; None if there are none and clients can have others."""
    given = settings().service_tokens
    if given is None and not here:
        return None
    if given is None:
        raise UserError(
            f"{VARIABLE} is not set: a service with a Redis of its own has no other tokens, as in"
            f' export {VARIABLE}="alice:$(openssl rand -hex 24)"'
        )
    return ServiceTokens(given.get_secret_value())


def _items(config: RunConfig, here: bool) -> Sequence[Item]:
    """Returns the items that clients may name, all checked; none without a benchmark."""
    if config.data.path is not None:
        with submitting() as count:
            submission, environments, _ = run_actions.prepared(config, count, here=here, show=False)
        preflight.check_here(config, (), environments)  # sessions are played here, wherever their VMs are
        return submission.items
    preflight.check_names(config, ())
    preflight.check_here(config, (), {config.env_mode})
    preflight.check_provider(config, {config.env_mode} if here else ())
    return ()


def _serve(
    config: RunConfig,
    items: Sequence[Item],
    operators: ServiceTokens | None,
    listener: Any,
    ttl: float,
    services: EmbeddedServices | None,
    stop: threading.Event,
    *,
    allow_help: bool,
) -> None:
    # Here, because wrong input needs none of it, and it is slow to import.
    from rollout_tasks.http_services.token_holders import TokenHolders
    from rollout_tasks.http_services.token_store import TokenStore
    from rollout_tasks.redis_client import checked_client, connect
    from rollout_tasks.service.desktop_sessions import DesktopSessions
    from rollout_tasks.service.lending.application import served
    from rollout_tasks.service.lending.lease_book import LeaseBook
    from rollout_tasks.service.lending.lease_calls import LeaseCalls
    from rollout_tasks.service.lending.places import WaitingPlaces

    allow_many_files()
    with ExitStack() as ends:
        checked_client().close()
        client = ends.enter_context(connect(tries=0))
        holders = TokenHolders(operators, TokenStore(client))
        holders.start()
        ends.callback(holders.close)
        folder = config.output_dir / FOLDER
        sessions = DesktopSessions(config, items, folder, most=config.num_rollouts, silent_seconds=ttl)
        ends.callback(sessions.close)
        places = WaitingPlaces(config.vm.pool) if config.vm.use_pool else None
        if places is not None:
            ends.callback(places.close)
        book = LeaseBook(sessions)
        holders.when_read = book.end_others
        calls = LeaseCalls(book, places, ttl)
        ends.callback(calls.close)
        application = served(calls, holders, places, allow_help=allow_help)
        most = most_connections(sessions.most)
        server = ends.enter_context(running_server(application, listener, most_connections=most))
        logger.info(
            "lending desktops at %s, %d at a time, %d items; %d tokens; records: %s",
            *(listening.url_of(listener), sessions.most, len(items), len(holders.users()), folder),
        )
        serve_until(stop, server, services)


def main() -> None:
    """Runs the command."""
    program.run(application)


if __name__ == "__main__":
    main()
