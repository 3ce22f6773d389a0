"""`rollouts pool`: shows and operates a pool of VMs: who holds what, who waits, what is broken."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Annotated

import redis
import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.cli.pool_tables import UNREACHABLE, events_table, status_as_dict, status_tables
from rollout_tasks.errors import UserError
from rollout_tasks.redis_address import checked_redis_url
from rollout_tasks.settings import settings
from vm_pool import Endpoint, PoolError, VMPool, VMState
from vm_pool.errors import PASSING
from vm_pool.gate_relay import relayed

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

PoolName = Annotated[str, typer.Option("--pool", help="The pool's name.")]
RedisUrl = Annotated[str | None, typer.Option("--redis-url", help="Default: REDIS_URL, else this machine's Redis.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables and sentences.")]
PRINT_SECONDS = 5.0
"""How often the table is printed when there is no terminal to draw on."""

OneVM = Annotated[str, typer.Argument(metavar="VM", help="The VM's id.")]
VMOrAll = Annotated[str, typer.Argument(metavar="VM", help="The VM's id, or 'all'.")]


@application.command()
def status(
    pool: PoolName = "default",
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep the table up to date until Ctrl-C.")] = False,
) -> None:
    """Show every VM, who holds it since when, and who waits."""
    if as_json and watch:
        raise UserError("--watch and --json cannot be combined; leave one of them out")
    opened = _open(pool, redis_url)
    if as_json:
        program.print_json(status_as_dict(opened.status()))
    elif watch:
        _watch(opened)
    else:
        table_console().print(status_tables(opened.status()))


@application.command()
def drain(vm: VMOrAll, pool: PoolName = "default", redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Take a VM out of service: it is granted no more, and stops once nobody uses it."""
    opened = _open(pool, redis_url)
    _each(opened, vm, as_json, lambda vm_id: f"is {_named(opened.drain(vm_id))} and drained")


@application.command()
def undrain(vm: VMOrAll, pool: PoolName = "default", redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Put a drained VM back into service; one in quarantine stays there until it is reset."""
    opened = _open(pool, redis_url)
    _each(opened, vm, as_json, lambda vm_id: f"is {_named(opened.undrain(vm_id))}")


def _named(state: VMState) -> str:
    return "in quarantine" if state is VMState.ERROR else state.value


@application.command()
def release(vm: OneVM, pool: PoolName = "default", redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Take a VM from whoever holds it; it is reset before the next one gets it."""
    opened = _open(pool, redis_url)

    def take(vm_id: str) -> str:
        opened.force_release(vm_id)
        return "was taken from its holder"

    _each(opened, vm, as_json, take)


@application.command()
def reset(vm: OneVM, pool: PoolName = "default", redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Have a free VM reset, or a quarantined one booted anew."""
    opened = _open(pool, redis_url)
    _each(opened, vm, as_json, lambda vm_id: f"is {opened.reset(vm_id).value}")


@application.command()
def quarantine(
    vm: OneVM,
    why: Annotated[str, typer.Option(help="Kept for whoever looks at the pool later.")] = "no reason given",
    pool: PoolName = "default",
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take a VM out of use, from its holder too, until it is reset, or its host starts again and boots all its VMs."""
    opened = _open(pool, redis_url)

    def take(vm_id: str) -> str:
        opened.quarantine(vm_id, why)
        return "is quarantined until it is reset or its host starts again"

    _each(opened, vm, as_json, take)


@application.command()
def remove(vm: OneVM, pool: PoolName = "default", redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Forget a VM whose host is gone for good. A live host registers it anew."""
    opened = _open(pool, redis_url)

    def take(vm_id: str) -> str:
        if not opened.remove([vm_id]):
            raise UserError(f"pool {pool!r} has no VM {vm_id}")
        return "is forgotten"

    _each(opened, vm, as_json, take)


@application.command()
def connect(
    vm: OneVM,
    purpose: Annotated[str, typer.Option(help="What to reach: vnc, control, chromium or vlc.")] = "vnc",
    pool: PoolName = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Reach a VM from this machine, whoever holds it, until its lease is over or Ctrl-C.

    The port for vnc shows a desktop in a browser, with a page from the guest: an
    agent may have changed it. Every user of this machine can use the port
    meanwhile.
    """
    opened = _open(pool, redis_url)
    endpoint = _reached(opened, vm)
    if purpose not in endpoint.ports:
        raise UserError(f"--purpose: {vm} has no port for {purpose!r}: {', '.join(sorted(endpoint.ports)) or 'none'}")
    with relayed(dataclasses.replace(endpoint, token=opened.token_of(endpoint.gate))) as there:
        page = "/vnc.html?autoconnect=true&resize=scale" if purpose == "vnc" else ""
        typer.echo(f"{vm} is at http://{there.address}:{there.ports[purpose]}{page} (Ctrl-C ends that)")
        while _still_at(opened, vm, endpoint):
            time.sleep(1)
    typer.echo(f"{vm}: that lease is over")


def _reached(opened: VMPool, vm_id: str) -> Endpoint:
    """Returns where a VM is reached now.

    Raises:
        UserError: The VM does not exist, or nobody can hold it now.
    """
    vms = {vm.vm_id: vm for vm in opened.status().vms}
    if vm_id not in vms:
        raise UserError(f"pool {opened.name!r} has no VM {vm_id}: it has {', '.join(sorted(vms)) or 'none'}")
    vm = vms[vm_id]
    if vm.state in UNREACHABLE:
        why = f" ({vm.error})" if vm.error else ""
        raise UserError(f"{vm_id} of pool {opened.name!r} cannot be reached: it {UNREACHABLE[vm.state]}{why}")
    return vm.endpoint


def _still_at(opened: VMPool, vm_id: str, endpoint: Endpoint) -> bool:
    """Returns whether the VM is still at that endpoint: its addresses change after a lease."""
    try:
        return _reached(opened, vm_id) == endpoint
    except UserError:
        return False
    except PASSING:  # while Redis is away, nobody else gets the VM
        return True


@application.command()
def events(
    pool: PoolName = "default",
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest events to show.")] = 50,
) -> None:
    """Show what happened last, oldest first."""
    found = _open(pool, redis_url).latest_events(limit)
    if as_json:
        program.print_json([{**dataclasses.asdict(event), "at": event.at} for event in found])
    else:
        table_console().print(events_table(found))


def _open(name: str, url: str | None) -> VMPool:
    try:
        return VMPool(redis.Redis.from_url(checked_redis_url(url or settings().redis_address)), name)
    except ValueError as error:
        raise UserError(f"--pool or --redis-url: {error}") from error


def _each(opened: VMPool, vm: str, as_json: bool, act: Callable[[str], str]) -> None:
    """Acts on one VM or all, and prints the results."""
    vm_ids = [found.vm_id for found in opened.status().vms] if vm == "all" else [vm]
    outcomes = []
    for vm_id in vm_ids:
        try:
            outcomes.append({"vm_id": vm_id, "outcome": act(vm_id)})
        except (PoolError, ValueError) as error:
            if vm == "all":
                _print(outcomes, as_json)
            raise UserError(str(error)) from error
    if outcomes:
        _print(outcomes, as_json)
    elif as_json:
        program.print_json([])
    else:
        typer.echo(f"pool {opened.name!r} has no VMs")


def _print(outcomes: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        program.print_json(outcomes)
        return
    for outcome in outcomes:
        typer.echo(f"{outcome['vm_id']} {outcome['outcome']}")


def _watch(opened: VMPool) -> None:
    console = table_console()
    if not console.is_terminal or console.is_dumb_terminal:  # Live shows nothing there
        while True:
            console.print(_seen(opened))
            time.sleep(PRINT_SECONDS)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_seen(opened), refresh=True)
            time.sleep(1)


def _seen(opened: VMPool) -> Group | Text:
    try:
        return status_tables(opened.status())
    except PoolError as error:
        return Text(str(error), style="red")


def main() -> None:
    """Runs the command."""
    program.run(application)
