"""The WebSockets of a lease and of a holder have a most."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rollout_tasks.service.lending.open_sockets import OpenSockets
from rollout_tasks.service.lending.refusal import Refusal


def refused(sockets: OpenSockets, lease_id: str, owner: str, most_leases: int) -> str:
    with pytest.raises(Refusal) as refusal, sockets.counted(lease_id, owner, most_leases):
        pass
    assert refusal.value.status == 429
    return refusal.value.sentence


def test_a_lease_has_a_most_whoever_connects() -> None:
    sockets = OpenSockets(2)
    with sockets.counted("a", "alice", 9), sockets.counted("a", "boss", 9):
        assert refused(sockets, "a", "alice", 9) == "the lease has 2 of these connections, the most: close one first"
    with sockets.counted("a", "alice", 9):
        pass


def test_a_holder_has_as_many_as_for_the_whole_quota_with_those_of_leases_that_are_over() -> None:
    sockets = OpenSockets(2)
    with ExitStack() as opened:
        for lease_id in ("over", "over", "now", "now"):
            opened.enter_context(sockets.counted(lease_id, "alice", 2))
        assert refused(sockets, "next", "alice", 2) == "you have 4 of these connections, the most: close one first"
        with sockets.counted("other", "bob", 1):
            pass
    with sockets.counted("next", "alice", 2):
        pass


def test_a_holder_without_any_quota_left_keeps_the_sockets_of_one_lease() -> None:
    sockets = OpenSockets(1)
    with sockets.counted("a", "alice", 0):
        assert refused(sockets, "b", "alice", 0)
