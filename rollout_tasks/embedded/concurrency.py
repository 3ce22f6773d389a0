"""Chooses how many rollouts an embedded run has at a time: as many as requested, if the machine and the run allow."""

from __future__ import annotations

from dataclasses import dataclass

CHILD_BYTES = 100 << 20
"""Memory that each concurrent rollout may need; a worker's child alone uses half of it from the start."""


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A number of rollouts at a time, and why it is not the number requested."""

    number: int
    reason: str = ""
    """Empty if it is the number requested."""


def concurrency(requested_number: int, rollouts: int, free_bytes: int) -> Concurrency:
    """Returns the number of processes that roll out.

    Args:
        requested_number: ``--num-rollouts``.
        rollouts: How many rollouts the run still has to do.
        free_bytes: Memory that programs can use without swapping.
    """
    room = max(1, free_bytes // CHILD_BYTES)
    number = min(requested_number, max(1, rollouts), room)
    if number == requested_number:
        return Concurrency(requested_number)
    if number == room:
        reason = f"{free_bytes >> 20} MB of memory are free, and each may need {CHILD_BYTES >> 20}"
    else:
        reason = "the run has no more"
    many = "rollout" if number == 1 else "rollouts"
    return Concurrency(number, f"{number} {many} at a time instead of {requested_number}: {reason}")
