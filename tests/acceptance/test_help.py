"""What the commands say of themselves: by either option, within 80 columns, with every name whole."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollout_tasks.cli.main import SUBCOMMANDS
from rollout_tasks.cli.run_options import config_options
from tests.acceptance.refusals import run_command
from tests.conftest import REPOSITORY

COMMANDS = [
    *("submit.py", "pool.py", "pool.py connect", "vm_host.py", "rescore.py", "show_result.py", "prefetch.py"),
    *("build_guest.py", "supply.py"),
    *(
        "rollouts",
        *(f"rollouts {name}" for name in SUBCOMMANDS),
        "rollouts image build",
        "rollouts pool connect",
        "rollouts retriever serve",
    ),
    *("rollouts desktops serve", "rollouts desktops token make", "rollouts desktops token list"),
    "rollouts desktops view",
]

SHORT = ["submit.py", "vm_host.py", "rollouts", "rollouts run", "rollouts pool connect"]
"""Which are also asked in the short form: each takes a second, and one function gives it to all."""


def help_of(command: str, option: str) -> subprocess.CompletedProcess[str]:
    program, *below = command.split()
    return run_command(program, [*below, option], REPOSITORY, {"COLUMNS": "80", "TERM": "dumb"})


@pytest.fixture(scope="module")
def helps() -> dict[tuple[str, str], subprocess.CompletedProcess[str]]:
    asked = [*((command, "--help") for command in COMMANDS), *((command, "-h") for command in SHORT)]
    with ThreadPoolExecutor(4) as threads:
        return dict(zip(asked, threads.map(lambda one: help_of(*one), asked), strict=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_said_within_80_columns(
    helps: dict[tuple[str, str], subprocess.CompletedProcess[str]], command: str
) -> None:
    done = helps[command, "--help"]

    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("command", SHORT)
def test_both_options_say_the_same(
    helps: dict[tuple[str, str], subprocess.CompletedProcess[str]], command: str
) -> None:
    long, short = helps[command, "--help"], helps[command, "-h"]

    assert (short.returncode, short.stdout) == (0, long.stdout), short.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_cut(helps: dict[tuple[str, str], subprocess.CompletedProcess[str]], command: str) -> None:
    """The tables cut with an ellipsis, which is one character."""
    cut = [line for line in helps[command, "--help"].stdout.splitlines() if "\N{HORIZONTAL ELLIPSIS}" in line]
    assert cut == []


@pytest.mark.parametrize("command", ["submit.py", "rollouts run", "rollouts submit"])
def test_every_option_of_a_run_is_shown(
    helps: dict[tuple[str, str], subprocess.CompletedProcess[str]], command: str
) -> None:
    words = set(re.findall(r"--[a-z0-9-]+", helps[command, "--help"].stdout))
    names = {name for option in config_options() for spelling in option.spellings for name in spelling.split("/")}
    assert {name for name in names if name.startswith("--")} - words == set()
