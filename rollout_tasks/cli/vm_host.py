"""`rollouts vm-host`: boots this machine's VMs into a pool, resets and checks them, and stops them at the end."""

from __future__ import annotations

import logging
import os
import threading
from typing import Annotated

import redis
import typer

from desktop_image import kept_facts
from rollout_tasks.cli import program
from rollout_tasks.errors import UserError
from rollout_tasks.key_values import key_values
from rollout_tasks.redis_address import checked_redis_url
from rollout_tasks.settings import settings
from rollout_tasks.temporary_files import use_own_folder
from rollout_tasks.vm_options import open_provider
from vm_pool import VMPool
from vm_pool.host import VMHost
from vm_pool.images import image_name
from vm_pool.providers import check_available, provider_names

PARENT_LOOK_SECONDS = 0.5

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@application.command(epilog=f"Providers: {', '.join(provider_names())}.")
def serve(
    num_vms: Annotated[int, typer.Option("--num-vms", "-m", min=1, help="How many VMs this machine has.")] = 3,
    provider: Annotated[str, typer.Option("--provider", help="Where they come from.")] = "simulated",
    pool: Annotated[str, typer.Option("--pool", help="The pool that they join.")] = "default",
    host_id: Annotated[
        str | None,
        typer.Option("--host-id", help="Default: the machine's name. Two hosts on one machine need two names."),
    ] = None,
    address: Annotated[
        str,
        typer.Option(
            "--address",
            help="This machine's address for workers that lease its VMs. The default serves this machine alone; at any other, "
            "connections use TLS and need a token made from Redis's password or ROLLOUT_GATE_KEY: without either, "
            "whoever reaches the address can act in leased VMs.",
        ),
    ] = "127.0.0.1",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="KEY=VALUE", help="For the provider; the value may be JSON. Repeatable."
        ),
    ] = None,
    exit_with_parent: Annotated[
        int | None,
        typer.Option("--exit-with-parent", metavar="PID", help="Stop when this process, the parent, has ended."),
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option("--redis-url", help="Default: REDIS_URL, else this machine's Redis.")
    ] = None,
) -> None:
    """Boot VMs into a pool and look after them until Ctrl-C or SIGTERM, which stops them."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        use_own_folder("vm-host-")
        opened = VMPool(redis.Redis.from_url(checked_redis_url(redis_url or settings().redis_address)), pool)
        made = open_provider(provider, key_values("--option", option or []))
        check_available(made)
        facts = kept_facts(image_name(made))
        host = VMHost(opened, made, num_vms=num_vms, host_id=host_id, gate_address=address, facts=facts)
    except ValueError as error:
        raise UserError(str(error)) from error
    stop = program.stopped_by_signals()
    if exit_with_parent is not None:
        threading.Thread(target=_stop_with_parent, args=(exit_with_parent, stop), daemon=True).start()
    host.run(stop)


def _stop_with_parent(parent: int, stop: threading.Event) -> None:
    while not stop.wait(PARENT_LOOK_SECONDS):
        if os.getppid() != parent:
            logging.info("the process that started this host has ended; stopping")
            stop.set()


def main() -> None:
    """Runs the command."""
    program.run(application)


if __name__ == "__main__":
    main()
