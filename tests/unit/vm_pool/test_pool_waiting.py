"""The steps of an acquisition, one after the other, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from vm_pool.errors import (
    AcquireStopped,
    AcquireTimeout,
    PoolEmpty,
    PoolError,
    PoolRefused,
    PoolRefusedForNow,
    PoolUnreachable,
)
from vm_pool.processes import this_process
from vm_pool.waiting import EMPTY_SECONDS, REFRESH_SECONDS, Ask, Grant, Leave, Pop, Request, Sleep, acquisition

SECOND = 1_000_000
SERVER_NOW = 5_000 * SECOND


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begin(clock: Clock, **terms: Any) -> Generator[Any, Any, Grant]:
    terms = {"priority": 0, "timeout": 60, "ttl": 10, "max_age": 100, **terms}
    return acquisition(Request("me", **terms), "p", clock)


def granted_in(seconds: float) -> list[Any]:
    return [1, "vm", 7, int(SERVER_NOW + seconds * SECOND), SERVER_NOW, ""]


QUEUED = [0, 42, SERVER_NOW, 3]


def result(steps: Generator[Any, Any, Grant], reply: Any) -> Grant:
    with pytest.raises(StopIteration) as done:
        steps.send(reply)
    return done.value.value


def test_the_deadline_counts_from_before_the_question(clock: Clock) -> None:
    steps = begin(clock)
    next(steps)
    clock.now += 3
    grant = result(steps, granted_in(10))
    assert grant == Grant("vm", 7, 110.0, "", 3.0)


def test_a_handed_over_grant_counts_from_the_servers_clock_as_last_heard(clock: Clock) -> None:
    steps = begin(clock)
    next(steps)
    clock.now += 0.5
    assert isinstance(steps.send(QUEUED), Pop)
    clock.now += 2
    granted_at = SERVER_NOW + 1 * SECOND
    grant = result(steps, f"7 {granted_at + 10 * SECOND} vm ")
    assert grant.deadline == 111.0
    assert grant.waited == 2.5


def test_a_grant_that_lay_about_is_asked_for_again(clock: Clock) -> None:
    steps = begin(clock)
    next(steps)
    steps.send(QUEUED)
    clock.now += 50  # paused
    step = steps.send(f"7 {SERVER_NOW + 11 * SECOND} vm ")
    assert isinstance(step, Ask)
    assert step.args[8] == 1
    assert result(steps, granted_in(10)).deadline == 160.0


def test_only_later_questions_say_that_the_token_may_have_a_grant(clock: Clock) -> None:
    steps = begin(clock)
    first = next(steps)
    sleep = steps.throw(PoolUnreachable("gone"))
    second = steps.send(None)
    assert isinstance(sleep, Sleep)
    assert (first.args[8], second.args[8]) == (0, 1)
    assert first.args[0] == second.args[0]
    assert next(begin(clock, token="known")).args[8] == 1


def test_the_ticket_is_kept_from_question_to_question(clock: Clock) -> None:
    steps = begin(clock)
    assert next(steps).args[5] == 0
    steps.send(QUEUED)
    clock.now += REFRESH_SECONDS
    assert steps.send(None).args[5] == 42


def test_blocking_is_sliced_so_that_a_stop_is_noticed(clock: Clock) -> None:
    steps = begin(clock, should_stop=lambda: False)
    next(steps)
    step, blocked = steps.send(QUEUED), 0.0
    while isinstance(step, Pop):
        assert 0 < step.seconds <= 1.0
        blocked += step.seconds
        clock.now += step.seconds
        step = steps.send(None)
    assert blocked == pytest.approx(REFRESH_SECONDS)


@pytest.mark.parametrize("trouble", [PoolUnreachable("gone"), PoolRefusedForNow("gone")], ids=["away", "refuses"])
def test_pauses_grow_while_redis_is_away_and_end_with_the_timeout(clock: Clock, trouble: PoolError) -> None:
    steps = begin(clock, timeout=10)
    next(steps)
    pauses = []
    while isinstance(step := steps.throw(trouble), Sleep):
        pauses.append(step.seconds)
        clock.now += step.seconds
        assert isinstance(steps.send(None), Ask)
    assert pauses[:5] == [0.05, 0.1, 0.2, 0.4, 0.8]
    assert max(pauses) == 1.0
    assert isinstance(step, Leave)
    with pytest.raises(AcquireTimeout, match="me got no VM of pool 'p' within 10 s; gone"):
        steps.throw(trouble)


def test_a_refusal_is_passed_on_after_leaving(clock: Clock) -> None:
    steps = begin(clock)
    next(steps)
    leave = steps.throw(PoolRefused("no right"))
    assert leave.args[1] == "1"
    with pytest.raises(PoolRefused, match="no right"):
        steps.send([0, 0, SERVER_NOW])


def test_an_abandoned_acquisition_ends_quietly(clock: Clock) -> None:
    steps = begin(clock)
    next(steps)
    steps.close()


def test_a_place_that_nobody_knows_is_none() -> None:
    assert AcquireTimeout("no VM came").place == 0


# A request's terms

PRIORITY = "priority {} is not between -100 and 100"
HOLDER = "holder must say who wants the VM, in one line of at most 256 characters"
TIMES = "ttl and max_age must be above 0 seconds, timeout at least 0"


def request(**terms: Any) -> Request:
    return Request(**{"holder": "me", "priority": 0, "timeout": 60, "ttl": 10, "max_age": 100, **terms})


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"priority": -101}, PRIORITY.format(-101)),
        ({"priority": 101}, PRIORITY.format(101)),
        ({"holder": ""}, HOLDER),
        ({"holder": "x" * 257}, HOLDER),
        ({"holder": "two\nlines"}, HOLDER),
        ({"ttl": 0}, TIMES),
        ({"ttl": -0.5}, TIMES),
        ({"max_age": 0}, TIMES),
        ({"max_age": -0.5}, TIMES),
        ({"timeout": -0.5}, TIMES),
    ],
)
def test_impossible_terms_are_refused_with_a_sentence(terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        request(**terms)


@pytest.mark.parametrize(
    "terms",
    [
        {"priority": -100},
        {"priority": 100},
        {"holder": "x"},
        {"holder": "x" * 256},
        {"ttl": 0.001},
        {"max_age": 0.001},
        {"timeout": 0},
    ],
)
def test_terms_that_are_just_possible_are_taken(terms: dict[str, Any]) -> None:
    ((name, value),) = terms.items()
    assert getattr(request(**terms), name) == value


def test_a_token_is_the_callers_or_one_that_nobody_has() -> None:
    assert (request(token="mine").token, request(token="mine").asked_before) == ("mine", True)
    first, second = request(), request()
    assert (first.asked_before, second.asked_before) == (False, False)
    assert first.token != second.token
    assert all(set(one.token) <= set("0123456789abcdef") and len(one.token) >= 22 for one in (first, second))


@pytest.mark.parametrize(
    ("ttl", "patience", "refresh"),
    [(3600, 10.0, 10 / 3), (8.5, 10.0, 10 / 3), (7.0, 9.0, 3.0), (1.0, 3.0, 1.0)],
)
def test_a_place_is_kept_ten_seconds_or_two_more_than_the_ttl(ttl: float, patience: float, refresh: float) -> None:
    wish = request(ttl=ttl)
    assert wish.patience == patience
    assert wish.refresh == pytest.approx(refresh)


def test_a_request_is_put_into_the_scripts_words_in_microseconds() -> None:
    wish = request(holder="rollout 7#0", priority=-3, ttl=1.5, max_age=20.25, token="t")
    day = 24 * 3600 * SECOND

    assert wish.words(42, True) == (
        "t", 1_500_000, 20_250_000, -3 * day, 3_500_000, 42, -3, "rollout 7#0", 1, this_process()
    )  # fmt: skip
    assert wish.words(0, False)[8] == 0


# How long a wait lasts, and what is said at its end


def test_no_block_outlasts_the_time_that_is_left(clock: Clock) -> None:
    steps = begin(clock, timeout=2.5)
    next(steps)
    assert steps.send(QUEUED).seconds == 2.5
    clock.now += 2.4999
    assert steps.send(None).seconds == 0.001, "no block is for ever, as 0 would be"
    clock.now += 0.0001
    leave = steps.send(None)
    assert leave.args[1] == "0", "a grant that came in this moment is taken"
    with pytest.raises(AcquireTimeout) as timeout:
        steps.send([0, 4])
    assert type(timeout.value) is AcquireTimeout
    assert str(timeout.value) == "me got no VM of pool 'p' within 2.5 s"
    assert timeout.value.place == 4


def test_a_block_lasts_until_the_next_question_where_nobody_may_stop_it(clock: Clock) -> None:
    steps = begin(clock, ttl=1.0)
    next(steps)
    clock.now += 0.25
    assert steps.send(QUEUED).seconds == 0.75
    clock.now += 0.75
    assert isinstance(steps.send(None), Ask), "a second after the last question, not a moment later"


def test_a_grant_that_comes_while_leaving_is_taken(clock: Clock) -> None:
    steps = begin(clock, timeout=2)
    next(steps)
    steps.send(QUEUED)
    clock.now += 2
    assert isinstance(steps.send(None), Leave)
    clock.now += 0.5

    assert result(steps, granted_in(10)) == Grant("vm", 7, 112.0, "", 2.5), "its time began when leaving was asked for"


@pytest.mark.parametrize("error", [PoolUnreachable("gone"), PoolRefused("no right"), PoolRefusedForNow("no memory")])
def test_who_cannot_leave_knows_no_place(clock: Clock, error: Exception) -> None:
    steps = begin(clock, timeout=0)
    next(steps)
    assert isinstance(steps.send(QUEUED), Leave)
    with pytest.raises(AcquireTimeout) as timeout:
        steps.throw(error)
    assert timeout.value.place == 0


@pytest.mark.parametrize("vms", [0, 1])
def test_only_a_pool_without_any_vm_is_called_empty_at_the_timeout(clock: Clock, vms: int) -> None:
    steps = begin(clock, timeout=0)
    next(steps)
    steps.send([0, 42, SERVER_NOW, vms])
    with pytest.raises(AcquireTimeout) as timeout:
        steps.send([0, 1])
    assert type(timeout.value) is (AcquireTimeout if vms else PoolEmpty)
    assert str(timeout.value) == "me got no VM of pool 'p' within 0 s"


def ask_again(steps: Generator[Any, Any, Grant], clock: Clock, seconds: float, vms: int) -> Any:
    """After so many seconds the block ends and the question is put again; the answer knows of so many VMs."""
    clock.now += seconds
    assert isinstance(steps.send(None), Ask)
    return steps.send([0, 42, SERVER_NOW, vms])


def test_waiting_for_a_pool_that_is_empty_for_thirty_seconds_is_pointless(clock: Clock) -> None:
    steps = begin(clock, timeout=3600)
    next(steps)
    assert isinstance(steps.send([0, 42, SERVER_NOW, 0]), Pop)
    assert isinstance(ask_again(steps, clock, 20, vms=2), Pop)
    assert EMPTY_SECONDS == 30.0
    assert isinstance(ask_again(steps, clock, 30, vms=0), Pop), "thirty seconds exactly are not yet too long"
    clock.now += 1
    assert steps.send(None).args[1] == "0"
    with pytest.raises(PoolEmpty) as empty:
        steps.send([0, 1])
    assert str(empty.value) == "pool 'p' has had no VM for 31 s: is a VM host running for it?"


def test_an_empty_pool_is_given_up_from_the_first_question_on(clock: Clock) -> None:
    steps = begin(clock, timeout=3600)
    next(steps)
    assert isinstance(steps.send([0, 42, SERVER_NOW, 0]), Pop)
    assert isinstance(ask_again(steps, clock, 30.5, vms=0), Leave)


def test_who_waits_for_an_empty_pool_keeps_the_ticket_to_the_end(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    steps = begin(clock, timeout=300, wait_while_empty=True)
    next(steps)
    assert isinstance(steps.send([0, 42, SERVER_NOW, 0]), Pop)
    for _ in range(7):
        clock.now += 40
        ask = steps.send(None)
        assert (type(ask), ask.args[5]) == (Ask, 42)
        assert isinstance(steps.send([0, 42, SERVER_NOW, 0]), Pop)
    assert isinstance(ask_again(steps, clock, 20, vms=0), Leave)
    with pytest.raises(PoolEmpty, match=r"^me got no VM of pool 'p' within 300 s$"):
        steps.send([0, 1])
    assert caplog.messages == ["me still waits: pool 'p' has had no VM for 40 s: is a VM host running for it?"]


def test_an_empty_pool_after_an_outage_is_given_its_time(clock: Clock) -> None:
    """Redis lost its data, and the hosts register their VMs again."""
    steps = begin(clock, timeout=3600)
    next(steps)
    assert isinstance(steps.send([0, 42, SERVER_NOW, 3]), Pop)
    clock.now += 5
    assert isinstance(steps.send(None), Ask)
    assert isinstance(steps.throw(PoolUnreachable("gone")), Sleep)
    clock.now += 100
    assert isinstance(steps.send(None), Ask)
    assert isinstance(steps.send([0, 42, SERVER_NOW, 0]), Pop)
    assert isinstance(ask_again(steps, clock, 30, vms=0), Pop)
    clock.now += 0.5
    assert isinstance(steps.send(None), Leave)


def test_a_redis_that_is_away_says_nothing_of_an_empty_pool(clock: Clock) -> None:
    steps = begin(clock, timeout=3600)
    next(steps)
    assert isinstance(steps.throw(PoolUnreachable("gone")), Sleep)
    clock.now += 100
    assert isinstance(steps.send(None), Ask)
    assert isinstance(steps.throw(PoolUnreachable("gone")), Sleep)


def test_a_pause_ends_with_the_time_that_is_left_and_begins_small_again(clock: Clock) -> None:
    steps = begin(clock, timeout=10)
    next(steps)
    for pause in (0.05, 0.1, 0.2):
        assert steps.throw(PoolUnreachable("gone")).seconds == pause
        assert isinstance(steps.send(None), Ask)
    assert isinstance(steps.send(QUEUED), Pop)
    clock.now += 9.97
    assert isinstance(steps.send(None), Ask)
    assert steps.throw(PoolUnreachable("gone")).seconds == pytest.approx(0.03)
    assert isinstance(steps.send(None), Ask)
    assert isinstance(steps.send(QUEUED), Pop)
    clock.now = 105.0
    assert isinstance(steps.throw(PoolUnreachable("gone")), Ask)
    assert steps.throw(PoolUnreachable("gone")).seconds == 0.05


def test_no_pause_is_below_nothing(clock: Clock) -> None:
    def late() -> float:
        now = clock.now
        clock.now += 0.3  # each look at the clock takes a while
        return now

    steps = acquisition(request(timeout=1.0), "p", late)
    next(steps)
    clock.now = 100.9
    assert steps.throw(PoolUnreachable("gone")) == Sleep(0.0)


@pytest.mark.parametrize("trouble", [PoolUnreachable("gone"), PoolRefusedForNow("read-only")], ids=["away", "refuses"])
def test_an_inbox_that_cannot_be_read_is_asked_about_at_once(clock: Clock, trouble: PoolError) -> None:
    steps = begin(clock)
    next(steps)
    assert isinstance(steps.send(QUEUED), Pop)
    ask = steps.throw(trouble)
    assert isinstance(ask, Ask)
    assert ask.args[8] == 1


def test_who_is_told_to_stop_gives_back_what_came_meanwhile(clock: Clock) -> None:
    stop = False
    steps = begin(clock, should_stop=lambda: stop, token="t")
    next(steps)
    assert isinstance(steps.send(QUEUED), Pop)
    stop = True
    assert steps.send(None) == Leave(("t", "1"))
    with pytest.raises(AcquireStopped) as stopped:
        steps.send([0, 1])
    assert str(stopped.value) == "me stopped waiting for a VM of pool 'p'"


@pytest.mark.parametrize(("ttl", "max_age"), [(10, 100), (100, 10)])
def test_a_grant_is_taken_as_long_as_half_its_time_is_left(clock: Clock, ttl: float, max_age: float) -> None:
    def handed_over(lay: float) -> Any:
        clock.now = 100.0
        steps = begin(clock, ttl=ttl, max_age=max_age)
        next(steps)
        steps.send(QUEUED)
        clock.now += lay
        message = f'7 {SERVER_NOW + 10 * SECOND} vm {{"address": "a b", "ports": {{}}}}'
        try:
            return steps.send(message)
        except StopIteration as done:
            return done.value

    assert handed_over(5.0) == Grant("vm", 7, 110.0, '{"address": "a b", "ports": {}}', 5.0)
    assert isinstance(handed_over(5.001), Ask)
