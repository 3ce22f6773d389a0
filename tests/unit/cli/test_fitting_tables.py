"""Tables in pipes and on narrow terminals: each row stays on one line, and the most telling columns stay."""

from __future__ import annotations

import errno
import io
import os
import re
from pathlib import Path

import pytest
import redis
from rich.console import Console

from benchmark.items import Item
from rollout_tasks.cli.listing import ListedRun, _table, listing
from rollout_tasks.cli.pool import events, status
from rollout_tasks.cli.pool_tables import events_table, status_tables
from rollout_tasks.config import RunConfig
from rollout_tasks.runs.folder import RunFolder
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint

RUN_ID = "20261126-075859-simulated-1a2b"
HOLDER = f"{RUN_ID}/chrome-0123456789#0"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(name="pool")
def _pool(redis_url: str) -> VMPool:
    pool = VMPool(redis.Redis.from_url(redis_url), "default")
    for number in range(2):
        pool.register(f"vm-host-{number}", Endpoint("127.0.0.1", {"control": 45_678, "vnc": 45_679}))
    pool.quarantine("vm-host-1", "it answers nothing for a minute, and nobody knows why " * 2)
    pool.acquire(HOLDER)
    return pool


def on_terminal(shown: object, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, markup=False)
    console.print(shown)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_in_a_pipe_a_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        folder = RunFolder(tmp_path / f"{RUN_ID}{number}")
        folder.description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")

    listing(output_dir=tmp_path)

    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "run",
        "submitted",
        "(UTC)",
        "environment",
        "agent",
        "model",
        "metric",
        "rollouts",
        "score",
        "coverage",
    ]
    assert len(lines) == 3
    assert re.search(
        rf"^{RUN_ID}\d +\d{{4}}-\d\d-\d\d \d\d:\d\d +osworld +tool_calling +gpt-4.1-2025-04-14 +exact_match ", lines[0]
    )


def test_on_a_narrow_terminal_a_run_is_one_line_with_its_score() -> None:
    run = ListedRun(
        RUN_ID,
        "2026-11-26T07:58:59+00:00",
        "simulated",
        "simulated",
        "gpt-4.1-2025-04-14",
        "exact_match",
        12,
        0.8167,
        1.0,
    )

    heading, line = on_terminal(_table([run]))

    assert heading.split() == ["run", "submitted", "(UTC)", "rollouts", "score"]
    assert line.split() == [RUN_ID, "2026-11-26", "07:58", "12", "0.8167"]
    assert len(on_terminal(_table([run]), width=140)[0].split()) == 10, "a wide one shows all"


def test_in_a_pipe_a_vm_is_one_line_and_a_fence_whole(
    pool: VMPool, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status(redis_url=redis_url)

    rows = [line for line in capsys.readouterr().out.splitlines() if "vm-host-" in line]
    assert len(rows) == 2
    assert HOLDER in rows[0]
    assert "and nobody knows why it answers nothing" in rows[1]

    events(redis_url=redis_url, limit=50)
    fences = [str(event.fence) for event in pool.latest_events(50)]
    said = capsys.readouterr().out
    assert all(re.search(rf"\b{fence}\b", said) for fence in fences)
    assert "…" not in said


def test_on_a_narrow_terminal_no_word_is_broken(pool: VMPool) -> None:
    lines = on_terminal(status_tables(pool.status()))

    assert [line for line in lines if re.search("vm-host-0 .* leased .*", line)], lines
    assert [line for line in lines if re.search("vm-host-1 .* error .*", line)], lines
    assert not [line for line in lines if "…" in line]
    assert "resets" not in "".join(lines[:4])

    rows = [line for line in on_terminal(events_table(pool.latest_events(50))) if "vm-host-" in line]
    assert len(rows) == len(pool.latest_events(50))
    assert "…" not in "".join(rows)


def test_a_folder_that_cannot_be_looked_at_hides_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "gone", "shut"):
        RunFolder(tmp_path / name).description.create(
            RunConfig(env_mode="math", agent="two\nlines\t\x1b[2J"), [Item("a", "?")], data_path="x", data_name="x"
        )
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    look = Path.stat

    def stat(path: Path, **how: bool) -> os.stat_result:
        if path.parent.name == "gone":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if path.parent.name == "shut":
            raise PermissionError(errno.EACCES, "Permission denied")
        return look(path, **how)

    monkeypatch.setattr(Path, "stat", stat)
    listing(output_dir=tmp_path)

    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == ["run", "good"]
    assert " two lines \N{REPLACEMENT CHARACTER}[2J " in said.out
    assert sorted(said.err.splitlines()) == [
        f"left out: {tmp_path}/loop cannot be read: Too many levels of symbolic links",
        f"left out: {tmp_path}/shut cannot be read: Permission denied",
    ]
