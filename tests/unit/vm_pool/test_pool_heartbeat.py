"""The renewing thread, with renewals that are the test's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from vm_pool.errors import PoolUnreachable
from vm_pool.heartbeat import LOOK_SECONDS, LeaseHeartbeat


class Rented:
    def __init__(self, vm_id: str, ttl: float) -> None:
        self.vm_id, self.fence, self.ttl = vm_id, 1, ttl
        self.deadline = time.monotonic() + ttl
        self.lost = threading.Event()
        self.renewed = threading.Semaphore(0)

    def extend(self, deadline: float | None) -> None:
        if deadline is None:
            self.lose("refused")
        else:
            self.deadline = deadline
            self.renewed.release()

    def lose(self, why: str) -> None:
        self.why = why
        self.lost.set()


def renewing(leases: Sequence[tuple[str, int]], seconds: float) -> list[float | None]:
    return [None if vm_id == "refused" else time.monotonic() + 60 for vm_id, _fence in leases]


def test_leases_are_renewed_until_unwatched() -> None:
    heartbeat = LeaseHeartbeat(renewing, "p")
    lease = Rented("a", 0.15)
    heartbeat.watch(lease)
    assert lease.renewed.acquire(timeout=10)
    assert lease.renewed.acquire(timeout=10)
    heartbeat.unwatch(lease)
    while lease.renewed.acquire(blocking=False):
        pass
    assert not lease.renewed.acquire(timeout=0.3)


def test_a_short_lease_is_not_held_up_by_a_long_one() -> None:
    heartbeat = LeaseHeartbeat(renewing, "p")
    heartbeat.watch(Rented("long", 3600))
    time.sleep(0.05)
    short = Rented("short", 0.15)
    heartbeat.watch(short)
    assert short.renewed.acquire(timeout=10)


def test_one_refusal_does_not_touch_the_others() -> None:
    heartbeat = LeaseHeartbeat(renewing, "p")
    good, bad = Rented("good", 0.15), Rented("refused", 0.15)
    heartbeat.watch(good)
    heartbeat.watch(bad)
    assert bad.lost.wait(10)
    assert good.renewed.acquire(timeout=10)
    assert good.renewed.acquire(timeout=10)
    assert not good.lost.is_set()


def test_many_leases_are_renewed_with_few_calls() -> None:
    calls = []

    def counting(leases: Sequence[tuple[str, int]], seconds: float) -> list[float | None]:
        calls.append(len(leases))
        return renewing(leases, seconds)

    heartbeat = LeaseHeartbeat(counting, "p")
    leases = [Rented(str(number), 3.0) for number in range(200)]
    for lease in leases:
        heartbeat.watch(lease)
    for lease in leases:
        assert lease.renewed.acquire(timeout=20)
    assert len(calls) <= 20


def test_short_leases_in_a_row_wake_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    heartbeat = LeaseHeartbeat(renewing, "p")
    looks = []
    look = heartbeat._next_due
    monkeypatch.setattr(heartbeat, "_next_due", lambda: looks.append(1) or look())
    for _ in range(100):
        lease = Rented("a", 60)
        heartbeat.watch(lease)
        heartbeat.unwatch(lease)
        time.sleep(0.002)
    assert len(looks) <= 2 + (time.monotonic() - began) / LOOK_SECONDS


@pytest.mark.parametrize("ttl", [0.15, 0.6])
def test_a_lease_nobody_answers_for_is_lost_at_its_deadline(ttl: float) -> None:
    def unanswered(leases: Sequence[tuple[str, int]], seconds: float) -> list[float | None]:
        assert seconds <= ttl
        raise PoolUnreachable("gone")

    heartbeat = LeaseHeartbeat(unanswered, "p")
    lease = Rented("a", ttl)
    heartbeat.watch(lease)
    assert lease.lost.wait(20)
    assert time.monotonic() >= lease.deadline


def test_a_defect_in_one_renewal_ends_no_later_lease(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([ValueError("no number"), TypeError("no list")])

    def defective(leases: Sequence[tuple[str, int]], seconds: float) -> list[float | None]:
        for defect in answers:
            raise defect
        return renewing(leases, seconds)

    heartbeat = LeaseHeartbeat(defective, "p")
    lease = Rented("a", 3.0)
    heartbeat.watch(lease)

    assert lease.renewed.acquire(timeout=10)
    assert not lease.lost.is_set()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["no number"]


def test_a_pool_that_is_away_and_back_is_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    def renew(leases: Sequence[tuple[str, int]], seconds: float) -> list[float | None]:
        nonlocal calls
        calls += 1
        if calls in {2, 3}:
            raise PoolUnreachable("Redis does not answer")
        return renewing(leases, seconds)

    heartbeat = LeaseHeartbeat(renew, "p")
    lease = Rented("a", 0.3)
    heartbeat.watch(lease)
    for _ in range(3):
        assert lease.renewed.acquire(timeout=10)
    heartbeat.unwatch(lease)

    assert calls >= 5
    assert [record.message for record in caplog.records] == [
        "pool p: leases cannot be renewed, still trying: Redis does not answer",
        "pool p: leases are renewed again",
    ]


def test_a_redis_that_does_not_answer_is_not_asked_all_the_time() -> None:
    asked: list[float] = []

    def unanswered(leases: Sequence[tuple[str, int]], seconds: float) -> list[float | None]:
        asked.append(time.monotonic())
        raise PoolUnreachable("gone")

    heartbeat = LeaseHeartbeat(unanswered, "p")
    lease = Rented("a", 1.2)
    heartbeat.watch(lease)

    assert lease.lost.wait(20)
    assert 2 <= len(asked) <= 8  # after 0.4 s, then every 0.2 s


def test_nor_is_it_shortly_before_a_deadline() -> None:
    asked: list[float] = []

    def unanswered(leases: Sequence[tuple[str, int]], seconds: float) -> list[float | None]:
        asked.append(time.monotonic())
        raise PoolUnreachable("gone")

    heartbeat = LeaseHeartbeat(unanswered, "p", lambda: 1)  # a connection broke: it is renewed at once
    lease = Rented("a", 30)
    lease.deadline = time.monotonic() + 1.5
    heartbeat.watch(lease)

    assert lease.lost.wait(20)
    assert 2 <= len(asked) <= 4
