"""A seeded sample of the plays with one fault; all of them are `python -m tests.faults` (docs/faults.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.files import Files
from tests.faults.kinds import Kind
from tests.faults.session import Session, chosen
from tests.faults.strace import strace_is_there

SAMPLE = (Kind.COMMAND_LOST, Kind.REPLY_LOST, Kind.LATE)
"""What the default suite plays, one of each."""
LARGER_SAMPLE = 120
SEED = 7


def test_a_sample_of_faults_leaves_one_right_result_per_rollout(tmp_path: Path) -> None:
    session = Session(tmp_path, recordings=1)
    tasks = [chosen(session.tasks(), kinds=[kind], seed=SEED, limit=1)[0] for kind in SAMPLE]
    done = session.run(tasks, jobs=1)
    assert [outcome for outcome in done if outcome.result == "wrong"] == []
    assert any(outcome.result == "right" for outcome in done), "no point was met"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_larger_sample(tmp_path: Path) -> None:
    session = Session(tmp_path)
    done = session.run(chosen(session.tasks(), seed=SEED, limit=LARGER_SAMPLE), jobs=2)
    assert [outcome for outcome in done if outcome.result == "wrong"] == []
    assert sum(outcome.result == "right" for outcome in done) > 0.9 * len(done)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not strace_is_there(), reason="strace is not installed, or may not attach to processes")
def test_a_sample_of_the_file_systems_faults(tmp_path: Path) -> None:
    session = Session(tmp_path, game=Files())
    done = session.run(chosen(session.tasks(), seed=SEED, limit=LARGER_SAMPLE // 4), jobs=2)
    assert [outcome for outcome in done if outcome.result == "wrong"] == []
    assert sum(outcome.result == "right" for outcome in done) > 0.5 * len(done)
