"""The journal of the service loop: what was begun and ended is known again after any kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.training.sampling_policy import PastRollout
from rollout_tasks.training.service_loop.journal import Begun, Ended, Journal


def begun(number: int, key: str, item_id: str = "a") -> Begun:
    return Begun(number, key, item_id, f"serve-{number:06d}", rollouts=2, max_turns=15)


def test_what_was_begun_and_ended_is_known_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number, key in ((1, "0:a"), (2, "0:b"), (3, "1:a")):
        journal.begin(begun(number, key))
    journal.end(Ended(1, rewards=[1.0, 0.0], turns=[4, 9], left_out={"infrastructure_loss": 1}))

    again = Journal(tmp_path)

    assert sorted(again.under_way) == [2, 3]
    assert again.under_way[3] == begun(3, "1:a")
    assert again.keys == {"0:a", "0:b", "1:a"}
    assert (again.last_number, again.ended, again.rewards) == (3, 1, 2)
    assert again.past("a") == [PastRollout(1.0, 4), PastRollout(0.0, 9)]
    assert again.past("b") == []


def test_a_group_that_was_not_submitted_can_be_begun_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin(begun(1, "0:a"))
    journal.withdraw(1)

    for one in (journal, Journal(tmp_path)):
        assert (one.under_way, one.keys, one.last_number) == ({}, set(), 0)


def test_only_so_many_rollouts_of_an_item_are_remembered(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(1, 41):
        journal.begin(begun(number, str(number)))
        journal.end(Ended(number, rewards=[0.0, 1.0], turns=[number, number]))

    assert len(journal.past("a")) == 64
    assert journal.past("a")[-1] == PastRollout(1.0, 40)


def test_a_line_that_a_kill_cut_off_is_dropped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin(begun(1, "0:a"))
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind": "ended", "num')

    Journal(tmp_path).begin(begun(2, "0:b"))

    assert sorted(Journal(tmp_path).under_way) == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        "3",
        '{"kind": "dance"}',
        '{"kind": "ended", "number": 7}',
        '{"kind": "begun", "number": 1}',
        '{"kind": "withdrawn"}',
        "[" * 100_000,
    ],
)
def test_a_line_that_no_journal_has_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "journal.jsonl").write_text(f"{line}\n")

    with pytest.raises(UserError, match=r"journal.jsonl: line 1 is not one of a journal"):
        Journal(tmp_path)


def test_an_end_that_is_said_twice_counts_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin(begun(1, "0:a"))
    journal.end(Ended(1, rewards=[1.0], turns=[4]))
    journal.end(Ended(1, rewards=[1.0], turns=[4]))
    with (tmp_path / "journal.jsonl").open("a") as file:  # of an earlier version
        file.write('{"kind": "ended", "number": 1, "rewards": [1.0], "turns": [4]}\n')

    assert (journal.ended, Journal(tmp_path).ended) == (1, 1)


def test_a_disk_that_is_full_leaves_no_half_line(tmp_path: Path) -> None:
    script = f"""
import resource, sys
from pathlib import Path
from rollout_tasks.training.service_loop.journal import Begun, Journal
journal = Journal(Path({str(tmp_path)!r}))
journal.begin(Begun(1, "0:a", "a", "serve-000001", 2, 15))
resource.setrlimit(resource.RLIMIT_FSIZE, (150, resource.RLIM_INFINITY))
try:
    journal.begin(Begun(2, "0:b", "b", "serve-000002", 2, 15))
except OSError:
    sys.exit(3)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 3

    assert sorted(Journal(tmp_path).under_way) == [1]
