"""`rollouts doctor`: shows what this machine can run and what it lacks, with the command that corrects it, if any."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.table import Table
from rich.text import Text

from desktop_image import PROFILES, is_built
from desktop_image.cache import guest_cache_folder
from rollout_tasks import registry
from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.config import RunConfig
from rollout_tasks.embedded.services import valkey_binary
from rollout_tasks.errors import UserError
from rollout_tasks.free_memory import free_memory
from rollout_tasks.models.serving import vllm_command
from rollout_tasks.models.serving.gpus import gpus, groups_with_room
from rollout_tasks.redis_client import address_without_secret, checked_client
from rollout_tasks.runs.asked_endpoint import served_models
from rollout_tasks.runs.model_check import model_address
from rollout_tasks.settings import settings
from rollout_tasks.vm_options import open_provider
from vm_pool.errors import PoolError
from vm_pool.providers import check_available

GOOD, LACKING = 0, 1
PROVIDERS = ("local", "qemu", "docker")
"""The providers of VMs on this machine itself."""
DESKTOP_GIB = 1.0
"""Memory to plan for one desktop with a program or two."""
IMAGE_GIB = 3
"""Space that an image with all programs takes, including its packages."""
_GIB = 1 << 30
_SERVICE, _REDIS, _MODEL = "service", "Redis", "model endpoint"

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    about: str
    name: str
    there: bool
    says: str
    """What was found; or what is missing, and what to do."""


@application.command()
def doctor(
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are to be.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Say what this machine can run and what it lacks, with the command that corrects it.

    Exit code 1: a service that is configured (REDIS_URL, OPENAI_BASE_URL) cannot be used.
    """
    findings: list[Finding] = []
    for finding in _findings(output_dir):
        findings.append(finding)
        if not as_json and sys.stderr.isatty():
            sys.stderr.write(f"\r\033[KLooked at {finding.name}")
    if not as_json and sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    if as_json:
        program.print_json([asdict(finding) for finding in findings])
    else:
        table_console(soft_wrap=False, highlight=False, markup=False).print(_table(findings))
    return LACKING if services_lacking(findings) else GOOD


def _findings(output_dir: Path) -> Iterator[Finding]:
    for name, reason in registry.available_environments().items():
        yield Finding("environment", name, reason is None, reason or "its rollouts can run here")
    for name in PROVIDERS:
        yield _tried("VMs", name, "such VMs can run here", partial(_check_provider, name))
    for name in PROFILES:
        command = f"rollouts image build --profile {name}"
        built = is_built(name)
        says = "is built" if built else f"is not built yet; before its first use, or now: {command}"
        yield Finding("image", name, built, says)
    yield from services()
    yield _model_servers()
    yield from _space(output_dir)


def _check_provider(name: str) -> None:
    check_available(open_provider(name, {}))


def _tried(about: str, name: str, good: str, try_it: Callable[[], object]) -> Finding:
    try:
        try_it()
    except (UserError, PoolError, ValueError, OSError) as error:
        return Finding(about, name, False, str(error))
    return Finding(about, name, True, good)


def services() -> Iterator[Finding]:
    """Looks at Redis and the model's endpoint; says of each what it is to runs here and to runs on workers."""
    yield _redis()
    yield _model()


def services_lacking(findings: Iterable[Finding]) -> bool:
    """Whether a service cannot be used that is configured."""
    return any(one.about == _SERVICE and one.name in configured_services() and not one.there for one in findings)


def configured_services() -> set[str]:
    """Returns the names of the services that the environment, or `.env`, names."""
    found = {_REDIS} if settings().broker_configured else set()
    if settings().openai_base_url is not None or settings().openai_api_key:
        found.add(_MODEL)
    return found


def _redis() -> Finding:
    run_clause = "rollouts run starts a Valkey of its own"
    if not settings().broker_configured:
        says = f"REDIS_URL is not set: {run_clause}; workers and rollouts submit need one"
        return _tried(_SERVICE, _REDIS, says, valkey_binary)
    try:
        valkey_binary()
    except UserError:
        run_clause = "rollouts run, which starts one of its own, has no program for it"
    says = (
        f"answers at {address_without_secret(settings().redis_address)}: rollouts submit sends runs there; {run_clause}"
    )
    return _tried(_SERVICE, _REDIS, says, lambda: checked_client().close())


def _model() -> Finding:
    try:
        address = model_address(RunConfig())
        if address is not None:
            return Finding(_SERVICE, _MODEL, True, f"{address} {served_models(address)}")
    except UserError as error:
        return Finding(_SERVICE, _MODEL, False, str(error))
    says = (
        "OPENAI_API_KEY and OPENAI_BASE_URL are not set: rollouts run takes the scripted model, for items that have a script;"
        " rollouts submit needs one"
    )
    return Finding(_SERVICE, _MODEL, not settings().broker_configured, says)


def _model_servers() -> Finding:
    try:
        vllm, found = vllm_command.program(), gpus()
    except UserError as error:
        return Finding("model", "servers", False, f"rollouts model serve cannot start any: {error}")
    room = len(groups_with_room(found, vllm_command.share_of_gpu([]), 1))
    where = (
        f"{room} of {len(found)} GPUs have room for one"
        if found
        else "there is no GPU, so it has to be vLLM for the CPU"
    )
    return Finding("model", "servers", not found or room > 0, f"rollouts model serve starts them with {vllm}: {where}")


def _space(output_dir: Path) -> Iterator[Finding]:
    available, total = free_memory() / _GIB, psutil.virtual_memory().total / _GIB
    desktops = int(available / DESKTOP_GIB)
    cores = len(os.sched_getaffinity(0))
    says = f"{available:.1f} of {total:.1f} GiB are free: some {desktops} desktops at a time"
    yield Finding("space", "memory", desktops > 0, f"{says}; {cores} cores")
    for name, folder, wanted in (("image cache", guest_cache_folder(), IMAGE_GIB), ("results", output_dir, 1)):
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
        free = shutil.disk_usage(there).free / _GIB
        writable = os.access(there, os.W_OK)
        says = f"{free:.0f} GiB are free in {there}" + ("" if writable else ", which cannot be written")
        yield Finding("space", name, writable and free >= wanted, says)


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in findings:
        mark = Text("yes", style="green") if one.there else Text("no", style="yellow")
        table.add_row(one.about, one.name, mark, one.says)
    return table


def main() -> None:
    """Runs the command."""
    program.run(application)
