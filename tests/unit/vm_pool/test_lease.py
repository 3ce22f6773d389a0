"""A lease as its holder sees it, with a keeper and a clock of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from vm_pool import lease as lease_module
from vm_pool.errors import LeaseLost, PoolError, PoolRefused, PoolRefusedForNow, PoolUnreachable
from vm_pool.lease import Lease
from vm_pool.states import Endpoint
from vm_pool.waiting import Grant, Request

REQUEST = Request(holder="me", priority=0, timeout=1.0, ttl=6.0, max_age=60.0, token="t")
GONE = PoolUnreachable("nobody answers")
NO_MEMORY = PoolRefusedForNow("no memory")


class Clock:
    """Moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Keeper:
    """Answers as told, in this order; the last answer holds for ever."""

    name = "p"

    def __init__(self, clock: Clock) -> None:
        self.releases: list[bool | PoolError] = [True]
        self.renewals: list[float | PoolError | None] = [1000.0]
        self.broken = 0
        self.asked: list[tuple[float, object]] = []
        self._clock = clock

    def renew(self, leases: Sequence[tuple[str, int]], seconds: float = 5.0) -> list[float | None]:
        self.asked.append((self._clock.now, (list(leases), seconds)))
        return [self._next(self.renewals)]

    def release(self, vm_id: str, fence: int) -> bool:
        self.asked.append((self._clock.now, (vm_id, fence)))
        return self._next(self.releases)

    def breaks(self) -> int:
        return self.broken

    def _next(self, answers: list):  # type: ignore[no-untyped-def,type-arg]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, PoolError):
            raise answer
        return answer


class Beats:
    """A heartbeat that notes what it is to renew."""

    def __init__(self) -> None:
        self.watched: list[Lease] = []

    def watch(self, lease: Lease) -> None:
        self.watched.append(lease)

    def unwatch(self, lease: Lease) -> None:
        self.watched.remove(lease)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease_module, "time", clock)
    return clock


@pytest.fixture
def keeper(clock: Clock) -> Keeper:
    return Keeper(clock)


@pytest.fixture
def beats() -> Beats:
    return Beats()


@pytest.fixture
def lease(keeper: Keeper, beats: Beats) -> Lease:
    endpoint = '{"address": "10.0.0.1", "ports": {"control": 5000}}'
    grant = Grant(vm_id="vm-0", fence=7, endpoint=endpoint, waited=0.5, deadline=106.0)
    return Lease(keeper, REQUEST, grant, beats)  # type: ignore[arg-type]


def test_a_renewal_that_the_release_overtakes_loses_nothing(lease: Lease, keeper: Keeper) -> None:
    """As when a heartbeat's renewal is on its way while its holder gives the VM back."""
    keeper.releases = [True]

    def renewed(_leases: object, _seconds: float) -> list[float | None]:
        assert lease.release()
        return [None]

    keeper.renew = renewed  # type: ignore[method-assign]
    with pytest.raises(LeaseLost, match="is over: it was released"):
        lease.renew()
    assert not lease.ended_early


def test_nothing_is_doubtful_about_a_lease_that_is_over(lease: Lease, keeper: Keeper, clock: Clock) -> None:
    """Otherwise its holder's heartbeat would ask about it all the time."""
    assert lease.doubtful
    clock.now = 106.0
    with pytest.raises(LeaseLost):
        lease.renew()
    assert not lease.doubtful


def test_a_lease_says_what_was_granted(lease: Lease, beats: Beats) -> None:
    assert (lease.vm_id, lease.fence, lease.holder, lease.token) == ("vm-0", 7, "me", "t")
    assert (lease.ttl, lease.waited, lease.deadline) == (6.0, 0.5, 106.0)
    assert (lease.address, lease.ports) == ("10.0.0.1", {"control": 5000})
    assert beats.watched == [lease]
    assert not lease.lost.is_set()
    lease.check()


@pytest.mark.parametrize(
    ("answers", "held", "early", "asked_at"),
    [
        ([True], True, False, [100.0]),
        ([False], False, True, [100.0]),  # somebody else may have had the VM
        ([GONE, True], True, False, [100.0, 100.1]),
        ([GONE, False], False, False, [100.0, 100.1]),  # the first try may have done it
        ([NO_MEMORY, True], True, False, [100.0, 100.1]),
        ([NO_MEMORY, False], False, True, [100.0, 100.1]),  # the first try did nothing
        ([PoolRefused("no right")], False, False, [100.0]),
        ([GONE, PoolRefused("no right")], False, False, [100.0, 100.1]),
    ],
)
def test_a_release_says_whether_the_lease_was_held(
    lease: Lease,
    keeper: Keeper,
    beats: Beats,
    answers: list[bool | PoolError],
    held: bool,
    early: bool,
    asked_at: list[float],
) -> None:
    keeper.releases = answers

    assert lease.release() is held
    assert lease.ended_early is early
    assert [at for at, _ in keeper.asked] == pytest.approx(asked_at)
    assert {what for _, what in keeper.asked} == {("vm-0", 7)}
    assert beats.watched == []
    assert lease.release() is False
    assert len(keeper.asked) == len(asked_at)
    with pytest.raises(LeaseLost):
        lease.check()


@pytest.mark.parametrize(("deadline", "tries"), [(102.05, 22), (200.0, 51)])
def test_a_release_that_nobody_answers_ends_with_the_lease_or_after_five_seconds(
    lease: Lease, keeper: Keeper, clock: Clock, caplog: pytest.LogCaptureFixture, deadline: float, tries: int
) -> None:
    keeper.releases = [GONE]
    lease.deadline = deadline

    assert lease.release() is False

    assert len(keeper.asked) == pytest.approx(tries, abs=1)
    assert not lease.ended_early
    assert caplog.messages == ["vm-0 of pool p is left to expire: nobody answers"]


def test_what_is_released_after_its_deadline_ended_early(lease: Lease, clock: Clock) -> None:
    clock.now = 106.0

    assert lease.release()
    assert lease.ended_early


def test_what_is_released_before_its_deadline_did_not(lease: Lease, clock: Clock) -> None:
    clock.now = 105.99

    lease.release()

    assert not lease.ended_early
    clock.now = 300.0
    with pytest.raises(LeaseLost, match=r"^the lease of vm-0 in pool 'p' by me is over: it was released$"):
        lease.check()
    assert not lease.ended_early


def test_at_its_deadline_a_lease_is_over_for_good(lease: Lease, clock: Clock) -> None:
    clock.now = 105.99
    lease.check()
    lost = lease.lost
    clock.now = 106.0

    sentence = r"^the lease of vm-0 in pool 'p' by me is over: it was not renewed before its deadline$"
    with pytest.raises(LeaseLost, match=sentence):
        lease.check()
    assert lost.is_set()
    assert lease.ended_early
    lease.extend(500.0)
    with pytest.raises(LeaseLost, match=sentence):
        lease.check()


def test_the_first_reason_is_the_one_that_is_told(lease: Lease) -> None:
    lease.lose("the host is gone")
    lease.lose("another thing")

    assert lease.lost.is_set()
    with pytest.raises(LeaseLost, match=r"is over: the host is gone$"):
        lease.check()


def test_renewing_moves_the_deadline_and_dispels_doubt(lease: Lease, keeper: Keeper) -> None:
    assert lease.doubtful
    lease.renew()

    assert keeper.asked == [(100.0, ([("vm-0", 7)], 2.0))]
    assert (lease.deadline, lease.doubtful) == (1000.0, False)
    keeper.broken = 1
    assert lease.doubtful
    lease.ttl = 60.0
    lease.renew()
    assert keeper.asked[1] == (100.0, ([("vm-0", 7)], 5.0))


def test_a_refused_renewal_ends_the_lease_at_once(lease: Lease, keeper: Keeper) -> None:
    keeper.renewals = [None]

    with pytest.raises(LeaseLost, match=r"is over: its renewal was refused"):
        lease.renew()
    with pytest.raises(LeaseLost):
        lease.renew()
    assert len(keeper.asked) == 1


def test_a_renewal_that_nobody_answers_ends_nothing(lease: Lease, keeper: Keeper) -> None:
    keeper.renewals = [GONE]

    with pytest.raises(PoolUnreachable):
        lease.renew()
    lease.check()
    assert (lease.deadline, lease.doubtful) == (106.0, True)


def test_leaving_the_block_releases(lease: Lease, keeper: Keeper, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with lease as same:
        assert same is lease

    assert [what for _, what in keeper.asked] == [("vm-0", 7)]
    assert caplog.messages == []


def test_a_vm_without_an_endpoint_has_no_address(keeper: Keeper) -> None:
    bare = Lease(keeper, REQUEST, Grant("vm-0", 7, 106.0, "", 0.0), None)

    assert (bare.address, dict(bare.ports)) == ("", {})
    assert bare.release()
    assert Endpoint("", {}) == lease_module.endpoint_from_json("")
