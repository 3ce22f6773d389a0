"""What a run's folder lacks, and that it is over: from its files alone, and as runs of earlier versions left them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.runs import ending
from rollout_tasks.runs.completeness import gap, lacking
from rollout_tasks.runs.finalize import write_reports
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.outcomes import outcomes
from rollout_tasks.runs.verdict import Verdict, cancelled_verdict

ITEMS = [Item(name, "?", "1") for name in "abc"]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.description.create(RunConfig(), ITEMS, data_path="x", data_name="x")
    return folder


def ended(rollout_id: str, failure: FailureClass | None = None) -> Verdict:
    return Verdict(rollout_id, 1, "failed" if failure else "completed", failure_class=failure, answer="1")


def settle(folder: RunFolder, *verdicts: Verdict) -> None:
    for verdict in verdicts:
        folder.settle(verdict, written=False)


def report(folder: RunFolder, stood: Mapping[str, Verdict]) -> None:
    """As the run store had it when the report was written: a verdict on each rollout."""
    found = outcomes(ITEMS, 1, lambda names: [stood[name] for name in names])
    write_reports(folder, RunConfig(), "exact_match", found, total_items=len(ITEMS))


CANCELLED = {name: cancelled_verdict(name, "the run was cancelled") for name in ("a#0", "b#0", "c#0")}
LOST = {name: ended(name, FailureClass.VM_LOST) for name in CANCELLED}


@pytest.mark.parametrize(
    ("reported", "settled", "missing"),
    [
        (None, {}, 3),
        (None, {"a#0": ended("a#0"), "b#0": LOST["b#0"]}, 1),
        ({**CANCELLED, "a#0": ended("a#0")}, {"a#0": ended("a#0")}, 0),
        ({**CANCELLED, "a#0": ended("a#0"), "b#0": LOST["b#0"]}, {"a#0": ended("a#0")}, 1),
        ({**CANCELLED, "a#0": LOST["a#0"]}, {"a#0": LOST["a#0"]}, 0),
        (CANCELLED, {"a#0": ended("a#0")}, 2),
        ({**CANCELLED, "a#0": LOST["a#0"]}, {"a#0": ended("a#0")}, 2),
        ({**CANCELLED, "a#0": ended("a#0", FailureClass.PARSE)}, {"a#0": ended("a#0", FailureClass.PARSE)}, 0),
    ],
    ids=[
        "nothing has ended, and there is no report",
        "what was lost has a verdict, too",
        "what the report calls cancelled never began",
        "what it calls lost was rolled out, and has left nothing",
        "a loss that nobody has tried again",
        "a resume has rolled out what was cancelled",
        "a resume has rolled out what was lost",
        "an agent's failure is no loss",
    ],
)
def test_a_rollout_is_missing_that_may_still_get_a_verdict(
    folder: RunFolder, reported: Mapping[str, Verdict] | None, settled: Mapping[str, Verdict], missing: int
) -> None:
    if reported is not None:
        report(folder, reported)
    settle(folder, *settled.values())

    said = f"{missing} of 3 rollouts have no verdict" if missing else ""
    assert lacking(folder) == said
    how = (
        f"; see how far it is with: rollouts status {folder.path}, or roll them out with: rollouts resume {folder.path}"
    )
    assert gap(folder) == (said + how if missing else "")


def test_a_run_that_is_over_lacks_nothing_until_it_goes_on(folder: RunFolder) -> None:
    assert not ending.is_over(folder)
    ending.record_beginning(folder)
    for _ in range(2):
        ending.record_end(folder)
        assert ending.is_over(folder)
        assert lacking(folder) == ""
    for _ in range(2):
        ending.record_beginning(folder)
        assert not ending.is_over(folder)
        assert lacking(folder) == "3 of 3 rollouts have no verdict"


def test_the_end_and_the_beginning_are_on_the_disk_and_others_may_read_them(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), ending.is_over(folder)))

    monkeypatch.setattr(os, "fsync", watched)
    before = os.umask(0)
    try:
        ending.record_end(folder)
    finally:
        os.umask(before)
    (mark,) = (path for path in folder.path.iterdir() if path.name.startswith("."))
    assert (mark.stat().st_mode & 0o777, mark.stat().st_size) == (0o644, 0)
    ending.record_beginning(folder)

    assert synced == [(str(folder.path), True), (str(folder.path), False)]
