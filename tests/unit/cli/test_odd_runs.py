"""`rollouts compare`, `stats` and `latency` of runs that are damaged or a stranger's: figures without it, or one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmark.errors import BenchmarkError
from rollout_tasks.cli import compare, latency, stats
from rollout_tasks.errors import UserError
from tests.unit.cli.recorded_runs import recorded

COMMANDS = {
    "compare": (compare.application, ["one", "two"]),
    "stats": (stats.application, ["one"]),
    "latency": (latency.application, ["one"]),
}
ODD: list[Any] = [None, True, -1, 1e308, float("nan"), float("inf"), 10**400, "", "x" * 9_999, [], [[7]], {"a": {}}]
ODD += ["a\ud800\x1b[2J\n"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of one of two runs that can be compared."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        recorded(tmp_path / "results" / name, {"a": [1.0]})
    return tmp_path / "results" / "one"


def check() -> None:
    """Runs the commands: each says figures, or raises what becomes one sentence."""
    for command, arguments in COMMANDS.values():
        done = CliRunner().invoke(command, [*arguments, "--json"])
        if isinstance(done.exception, UserError | BenchmarkError) or (
            isinstance(done.exception, OSError) and done.exception.filename
        ):
            assert len(str(done.exception)) < 2_000
        elif done.exception is not None:
            raise done.exception
        else:
            json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def put(values: Any, place: tuple[str | int, ...], odd: Any) -> Any:
    """The values with an odd one at a place."""
    if not place:
        return odd
    first, *rest = place
    changed = dict(values) if isinstance(values, dict) else list(values)
    changed[first] = put(values[first], tuple(rest), odd)
    return changed


def places(values: Any, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """All places in JSON values."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [above, *(place for name, one in inner for place in places(one, (*above, name)))]


FILES = [
    "run.json",
    "evaluation.json",
    "events.jsonl",
    "items.jsonl",
    "a/0/result.json",
    "a/0/attempt-1/result.json",
    "a/0/attempt-1/trajectory.jsonl",
]
DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "deep": lambda path: path.write_text("[" * 100_000),
    "twice": lambda path: path.write_bytes(2 * path.read_bytes()),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize(
    "damage",
    ["cut", "a link", *(pytest.param(one, marks=pytest.mark.slow) for one in DAMAGES if one not in {"cut", "a link"})],
)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_damaged(name: str, damage: str, run: Path) -> None:
    DAMAGES[damage](run / name)

    check()


@pytest.mark.parametrize("name", ["a", "a/0", "a/0/attempt-1"])
def test_a_folder_that_is_a_link(name: str, run: Path) -> None:
    (run / name).rename(run.parent / "elsewhere")
    (run / name).symlink_to(run.parent / "elsewhere")

    check()


def test_a_version_of_the_future(run: Path) -> None:
    for path in run.rglob("*.json"):
        values = json.loads(path.read_text())
        for name in (
            [name for name in values if "version" in name or "schema" in name] if isinstance(values, dict) else []
        ):
            path.write_text(json.dumps({**values, name: 999}))
            check()
            path.write_text(json.dumps(values))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_each_value_may_be_odd(name: str, run: Path) -> None:
    lines = (run / name).read_text().splitlines() if name.endswith(".jsonl") else [(run / name).read_text()]
    for number, line in enumerate(lines):
        values = json.loads(line)
        for count, place in enumerate(places(values)):
            changed = json.dumps(put(values, place, ODD[(count + number) % len(ODD)]))
            (run / name).write_text("\n".join([*lines[:number], changed, *lines[number + 1 :], ""]))
            check()
