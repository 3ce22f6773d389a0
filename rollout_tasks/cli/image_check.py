"""`rollouts image build --check`: shows for each task of a tree how far its score can be relied on in an image."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmark.items import Item, load_items
from rollout_tasks import registry
from rollout_tasks.cli import conformance_table, program
from rollout_tasks.cli.image_progress import image_progress
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.osworld.conformance import conformance, image_facts
from rollout_tasks.errors import UserError
from rollout_tasks.key_values import key_values
from rollout_tasks.runs import preflight


def check_tasks(
    tasks: Path, profile: str, provider: str, provider_options: list[str], *, as_page: bool, as_json: bool
) -> None:
    """Shows for each task of a tree whether its score can be relied on in the image."""
    options = {"profile": profile, **key_values("--provider-option", provider_options)}
    items, wrong = tasks_in(tasks)
    for sentence in wrong:
        program.tell(f"left out: {sentence}")
    with image_progress() as progress:
        facts = image_facts(provider, options, progress)
    found = conformance(items, [facts])
    if as_json:
        program.print_json(conformance_table.as_json(found))
    elif as_page:
        where = f"the image `{profile}` of the provider `{provider}`"
        command = command_of_page(tasks, profile, provider, provider_options)
        sys.stdout.write(conformance_table.as_page(found, tasks.name, where, command))
    else:
        conformance_table.show(found)


def tasks_in(path: Path) -> tuple[list[Item], list[str]]:
    """Returns the tasks of OSWorld in some data, and a sentence for each item that is left out.

    Items of other environments touch no desktop: nothing can be said of them.

    Raises:
        UserError: A task is wrong, or there is none.
        BenchmarkError: The data cannot be read.
    """
    config = RunConfig(env_mode="osworld")
    loaded = load_items(str(path))
    tasks = [item for item in loaded.items if registry.environment_name(item, config) == "osworld"]
    if not tasks:
        raise UserError(f"--check: {path} has no task of osworld")
    return preflight.check_items(config, tasks, loaded.places)


def command_of_page(tasks: Path, profile: str, provider: str, provider_options: Sequence[str]) -> str:
    """Returns the command that prints a page about how far scores can be relied on in an image."""
    words = ["rollouts", "image", "build", "--profile", profile]
    if provider != "local":
        words += ["--provider", provider]
    for option in provider_options:
        words += ["--provider-option", option]
    return shlex.join([*words, "--check", str(tasks), "--page"])
