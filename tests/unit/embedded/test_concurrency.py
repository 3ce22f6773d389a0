"""How many rollouts at a time an embedded run allows itself."""

from __future__ import annotations

import pytest

from rollout_tasks.embedded.concurrency import CHILD_BYTES, concurrency

ROOM = 100 * CHILD_BYTES


@pytest.mark.parametrize(
    ("asked", "rollouts", "free", "number", "reason"),
    [
        (5, 25, ROOM, 5, ""),
        (25, 25, ROOM, 25, ""),
        (3000, 25, ROOM, 25, "25 rollouts at a time instead of 3000: the run has no more"),
        (
            3000,
            5000,
            ROOM,
            100,
            "100 rollouts at a time instead of 3000: 10000 MB of memory are free, and each may need 100",
        ),
        (4, 25, 1, 1, "1 rollout at a time instead of 4: 0 MB of memory are free, and each may need 100"),
        (1, 0, ROOM, 1, ""),
    ],
)
def test_no_more_processes_than_there_is_work_and_room_for(
    asked: int, rollouts: int, free: int, number: int, reason: str
) -> None:
    found = concurrency(asked, rollouts, free)

    assert (found.number, found.reason) == (number, reason)
