"""The renewing thread's steps, one at a time on a clock of the test's own: what is due when, and for how long it sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from vm_pool import heartbeat as heartbeat_module
from vm_pool.errors import PoolUnreachable
from vm_pool.heartbeat import LeaseHeartbeat


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Changed(threading.Condition):
    """Notes sleeps instead of sleeping, and who was woken."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.woken = 0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.slept.append(round(timeout, 6))
        return False

    def notify(self, n: int = 1) -> None:
        self.woken += n


class Stepped(LeaseHeartbeat):
    """Its thread ends at once: the test takes the steps."""

    def __init__(self, clock: Clock, breaks: Callable[[], int] | None = None) -> None:
        super().__init__(self.asked_for, "p", *([breaks] if breaks else []))
        self._changed = self.changed = Changed()
        self.clock = clock
        self.asked: list[tuple[list[tuple[str, int]], float]] = []
        self.answers: list[float | None] | Exception = []
        self.during: Callable[[], None] = lambda: None
        self.threads: list[threading.Thread] = []
        self.started = threading.Semaphore(0)

    def asked_for(self, leases: Sequence[tuple[str, int]], seconds: float) -> list[float | None]:
        self.asked.append((list(leases), seconds))
        self.during()
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def _run(self) -> None:
        self.threads.append(threading.current_thread())
        self.started.release()


class Rented:
    def __init__(self, vm_id: str, ttl: float, deadline: float = 1000.0, fence: int = 1) -> None:
        self.vm_id, self.fence, self.ttl, self.deadline = vm_id, fence, ttl, deadline
        self.taken: list[float | None] = []
        self.why: list[str] = []

    def extend(self, deadline: float | None) -> None:
        self.taken.append(deadline)

    def lose(self, why: str) -> None:
        self.why.append(why)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(heartbeat_module, "time", clock)
    return clock


@pytest.fixture
def heartbeat(clock: Clock) -> Stepped:
    return Stepped(clock)


def test_the_thread_ends_with_its_process_and_says_whose_it_is(heartbeat: Stepped) -> None:
    heartbeat.watch(Rented("a", 30))
    assert heartbeat.started.acquire(timeout=20)
    assert [(one.daemon, one.name) for one in heartbeat.threads] == [(True, "leases of p")]
    heartbeat.watch(Rented("b", 30))
    assert not heartbeat.started.acquire(blocking=False), "one thread serves all leases"


def test_a_lease_is_due_after_a_third_of_its_ttl_or_a_little_before(heartbeat: Stepped, clock: Clock) -> None:
    lease = Rented("a", 30)
    heartbeat.watch(lease)
    clock.now = 108.99
    assert heartbeat._next_due() == []
    clock.now = 109.0
    assert heartbeat._next_due() == [lease]


@pytest.mark.parametrize(("ttls", "slept"), [([30], 0.5), ([30, 0.9], 0.3), ([0.9, 30], 0.3), ([1.5], 0.5)])
def test_it_sleeps_until_something_is_due_and_looks_for_broken_connections(
    heartbeat: Stepped, ttls: list[float], slept: float
) -> None:
    for number, ttl in enumerate(ttls):
        heartbeat.watch(Rented(str(number), ttl))
    assert heartbeat._next_due() == []
    assert heartbeat.changed.slept == [slept]


def test_only_a_lease_that_is_due_before_it_wakes_up_wakes_it(heartbeat: Stepped, clock: Clock) -> None:
    heartbeat.watch(Rented("a", 30))
    heartbeat.watch(Rented("b", 30))
    assert heartbeat.changed.woken == 0
    heartbeat.watch(Rented("c", 29.9))
    assert heartbeat.changed.woken == 1
    heartbeat._next_due()  # sleeps until 100.5
    heartbeat.watch(Rented("d", 1.5))
    assert heartbeat.changed.woken == 1
    heartbeat.watch(Rented("e", 1.2))
    assert heartbeat.changed.woken == 2


def test_each_break_has_all_renewed_once(clock: Clock) -> None:
    breaks = 3
    heartbeat = Stepped(clock, lambda: breaks)
    leases = [Rented("a", 30), Rented("b", 3600)]
    for lease in leases:
        heartbeat.watch(lease)
    heartbeat.answers = [500.0, 600.0]
    assert heartbeat._next_due() == leases, "it may have been just after the grant"
    heartbeat._beat(leases)
    assert heartbeat._next_due() == []

    breaks = 4
    assert heartbeat._next_due() == leases
    heartbeat._beat(leases)
    assert heartbeat._next_due() == []

    for lease in leases:
        heartbeat.unwatch(lease)
    clock.now += 30
    assert heartbeat._next_due() is None
    breaks = 5
    heartbeat.watch(leases[0])
    assert heartbeat._next_due() == [leases[0]], "it may have been just after this one's grant"


def test_nobody_asks_for_breaks_without_leases(clock: Clock) -> None:
    asked: list[int] = []
    heartbeat = Stepped(clock, lambda: asked.append(1) or 0)  # type: ignore[func-returns-value]
    lease = Rented("a", 30)
    heartbeat.watch(lease)
    heartbeat.unwatch(lease)
    asked.clear()
    heartbeat._next_due()
    assert asked == []


@pytest.mark.parametrize(("ttl", "slept"), [(3600, 0.5), (1.5, 0.5), (0.9, 0.3)])
def test_without_leases_it_ends_after_thirty_seconds(
    heartbeat: Stepped, clock: Clock, ttl: float, slept: float
) -> None:
    """Until then, it wakes up in time for a lease that is added while it sleeps, and for a break during that lease."""
    first, last = Rented("a", 3600), Rented("b", ttl)
    heartbeat.watch(first)
    assert heartbeat.started.acquire(timeout=20)
    clock.now = 150.0
    heartbeat.watch(last)
    heartbeat.unwatch(first)
    heartbeat.unwatch(last)
    heartbeat.unwatch(last)  # harmless
    assert heartbeat._next_due() == []
    assert heartbeat.changed.slept == [slept]
    woken = heartbeat.changed.woken
    heartbeat.watch(last)
    assert heartbeat.changed.woken == woken
    heartbeat.unwatch(last)
    clock.now = 179.99
    assert heartbeat._next_due() == []
    clock.now = 180.0
    assert heartbeat._next_due() is None
    heartbeat.watch(last)
    assert heartbeat.started.acquire(timeout=20), "a later lease has a thread again"


@pytest.mark.parametrize(("ttls", "seconds"), [([30], 5.0), ([15], 5.0), ([9, 6, 12], 2.0)])
def test_an_answer_may_take_a_third_of_the_shortest_ttl_or_five_seconds(
    heartbeat: Stepped, ttls: list[float], seconds: float
) -> None:
    leases = [Rented(f"vm-{number}", ttl, fence=number + 7) for number, ttl in enumerate(ttls)]
    for lease in leases:
        heartbeat.watch(lease)
    heartbeat.answers = [500.0 + number for number in range(len(ttls))]
    heartbeat._beat(leases)
    assert heartbeat.asked == [([(f"vm-{number}", number + 7) for number in range(len(ttls))], seconds)]
    assert [lease.taken for lease in leases] == [[500.0 + number] for number in range(len(ttls))]


def test_after_a_renewal_each_lease_is_due_by_its_own_ttl(heartbeat: Stepped, clock: Clock) -> None:
    leases = [Rented("gone", 30), Rented("refused", 30), Rented("long", 60), Rented("short", 30)]
    for lease in leases:
        heartbeat.watch(lease)

    def answered_late() -> None:
        clock.now = 112.0
        heartbeat.unwatch(leases[0])

    heartbeat.during = answered_late
    heartbeat.answers = [500.0, None, 600.0, 700.0]
    heartbeat._beat(leases)

    assert [lease.taken for lease in leases] == [[], [None], [600.0], [700.0]]
    assert heartbeat._due == {leases[2]: 132.0, leases[3]: 122.0}
    assert heartbeat.changed.slept == []


def test_after_a_failure_what_is_not_over_is_tried_again_before_its_deadline(heartbeat: Stepped, clock: Clock) -> None:
    gone, over, soon, later = (
        Rented("gone", 9), Rented("over", 3, 101.0), Rented("soon", 9, 101.25), Rented("later", 9, 101.75)
    )  # fmt: skip
    leases = [gone, over, soon, later]
    for lease in leases:
        heartbeat.watch(lease)
    heartbeat.unwatch(gone)
    clock.now = 101.0
    heartbeat.answers = PoolUnreachable("gone")
    heartbeat._beat(leases)

    assert heartbeat._due == {soon: 101.55, later: 101.75}
    assert over.why == ["Redis could not be reached until its deadline"]
    assert [lease.why for lease in (gone, soon, later)] == [[], [], []]


def test_after_a_last_try_shortly_before_its_deadline_a_lease_is_left_alone_until_then(
    heartbeat: Stepped, clock: Clock
) -> None:
    lease = Rented("a", 30, 130.0)
    heartbeat.watch(lease)
    heartbeat.answers = PoolUnreachable("gone")
    tries: list[float] = []
    while not lease.why:
        if leases := heartbeat._next_due():
            tries.append(clock.now)
            assert len(tries) < 100, "it is tried without a pause"
            heartbeat._beat(leases)
        else:
            clock.now += heartbeat.changed.slept[-1]
    assert tries == [*map(float, range(109, 131))]


def test_a_failed_renewal_is_no_news_of_a_break_but_its_end_is(clock: Clock) -> None:
    """It breaks a connection itself: otherwise, all leases would be asked about without any pause."""
    breaks = 0
    heartbeat = Stepped(clock, lambda: breaks)
    leases = [Rented("a", 30), Rented("b", 3600)]
    for lease in leases:
        heartbeat.watch(lease)

    def broken() -> None:
        nonlocal breaks
        breaks += 1

    heartbeat.during, heartbeat.answers = broken, PoolUnreachable("gone")
    heartbeat._beat(leases[:1])
    assert heartbeat._next_due() == []
    clock.now += 1.001
    assert heartbeat._next_due() == leases[:1]
    heartbeat.during, heartbeat.answers = lambda: None, [500.0]
    heartbeat._beat(leases[:1])
    assert heartbeat._next_due() == leases[1:], "Redis may have come back without them"


@pytest.mark.parametrize(("ttl", "pause"), [(60, 1.0), (6, 1.0), (0.12, 0.02)])
def test_it_is_tried_again_after_a_second_or_half_of_what_is_between_renewals(
    heartbeat: Stepped, clock: Clock, ttl: float, pause: float
) -> None:
    lease = Rented("a", ttl)
    heartbeat.watch(lease)
    heartbeat.answers = PoolUnreachable("gone")
    heartbeat._beat([lease])
    clock.now += pause - 0.001
    assert heartbeat._next_due() == []
    clock.now += 0.002
    assert heartbeat._next_due() == [lease]
