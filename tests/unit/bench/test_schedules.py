"""The yardsticks of the utilisation bench: what a fleet could do at best, and the figures of what it did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench.schedule import (
    LONGEST,
    RESET,
    WITHOUT_VM,
    Item,
    Visit,
    draw_items,
    figures,
    fleet_schedule,
    list_schedule,
    lower_bound,
    share_of_time,
)

USE_ONLY = [Item(0, use, 0) for use in (3.0, 1.0, 1.0, 2.0)]


def test_the_list_schedule_gives_each_vm_the_next_item_when_it_is_clean() -> None:
    # VM a: 3. VM b: 1, reset, 1, reset, 2.
    assert list_schedule(USE_ONLY, vms=2) == pytest.approx(1 + RESET + 1 + RESET + 2)


def test_what_needs_no_vm_delays_only_the_first_and_the_last() -> None:
    items = [Item(0.1, 1.0, 0.2)] * 3
    assert list_schedule(items, vms=1) == pytest.approx(0.1 + 3 * 1.0 + 2 * RESET + 0.2)


@pytest.mark.parametrize(
    ("workers", "vms", "makespan"),
    [
        (1, 1, 2 * 1.3),  # the reset is over before the next episode needs the VM
        (2, 1, 0.1 + 1.0 + RESET + 1.0 + 0.2),  # the second worker waits for the VM
        (2, 2, 1.3),
        (1, 2, 2 * 1.3),
    ],
)
def test_an_ideal_fleet_of_two_items(workers: int, vms: int, makespan: float) -> None:
    assert fleet_schedule([Item(0.1, 1.0, 0.2)] * 2, workers, vms) == pytest.approx(makespan)


def test_vms_go_to_whoever_asked_first() -> None:
    first, second, third = Item(0.1, 1.0, 0.0), Item(0.2, 1.0, 5.0), Item(0.6, 1.0, 0.0)
    seconds_grant = 0.1 + 1.0 + RESET
    assert fleet_schedule([third, first, second], 3, 1) == pytest.approx(seconds_grant + 1.0 + 5.0)


@pytest.mark.parametrize(
    ("workers", "vms", "bound"),
    [
        (8, 2, (7 + 2 * RESET) / 2),  # VMs
        (2, 8, 7 / 2),  # workers
        (8, 8, 3.0),  # the longest item
    ],
)
def test_the_lower_bound_is_the_tightest_of_three(workers: int, vms: int, bound: float) -> None:
    assert lower_bound(USE_ONLY, workers, vms) == pytest.approx(bound)


plans = st.tuples(st.integers(1, 60), st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 10))


@given(plans)
def test_no_schedule_beats_the_lower_bound(plan: tuple[int, int, int, int]) -> None:
    count, seed, workers, vms = plan
    items = draw_items(count, seed)
    assert fleet_schedule(items, workers, vms) >= lower_bound(items, workers, vms) - 1e-9
    assert list_schedule(items, vms) >= lower_bound(items, len(items), vms) - 1e-9


@given(plans)
def test_with_a_vm_for_every_item_nobody_waits(plan: tuple[int, int, int, int]) -> None:
    count, seed, _workers, _vms = plan
    items = draw_items(count, seed)
    assert fleet_schedule(items, 1, count) == pytest.approx(sum(item.total for item in items))
    assert fleet_schedule(items, count, count) == pytest.approx(max(item.total for item in items))


def test_drawn_episodes_are_heavy_tailed_with_mean_one() -> None:
    items = draw_items(20_000, seed=1)
    totals = sorted(item.total for item in items)
    assert sum(totals) / len(totals) == pytest.approx(1.0)
    assert totals[len(totals) // 2] < 0.75
    assert 3.5 < totals[int(len(totals) * 0.98)] <= totals[-1] < LONGEST * 1.1
    assert all(item.before + item.after == pytest.approx(WITHOUT_VM * item.total) for item in items)
    assert draw_items(20_000, seed=1) == items
    assert draw_items(20_000, seed=2) != items


def test_share_of_time_cuts_spans_at_the_end() -> None:
    assert share_of_time([(0.0, 2.0), (1.0, 5.0), (3.0, 4.0)], until=2.0, vms=2) == pytest.approx((2 + 1) / 4)


def test_figures_of_two_workers_on_one_vm() -> None:
    item = Item(0.0, 0.95, 0.05)
    visits = [
        Visit(item, first=True, requested_at=0.0, granted=0.0),
        Visit(item, first=True, requested_at=0.0, granted=1.0),
        Visit(item, first=False, requested_at=1.0, granted=2.0),
        Visit(item, first=False, requested_at=2.0, granted=3.5),
    ]
    own = figures(visits, makespan=4.5, items=[item] * 4, workers=2, vms=1)

    assert own.held == pytest.approx(4 * 0.95 / 4.5)
    assert own.busy == pytest.approx((4 * 0.95 + 4 * RESET) / 4.5)
    assert own.held_until_last_grant == pytest.approx(3 * 0.95 / 3.5)
    assert own.busy_until_last_grant == pytest.approx(3 / 3.5)
    assert own.delay_p50 == pytest.approx(1.25)  # of 1.0 and 1.5: first waits do not count
    assert own.delay_p99 == pytest.approx(1.495)
    assert own.over_list_schedule == pytest.approx(4.5 / 4.0)
    assert own.over_fleet_schedule == pytest.approx(4.5 / 4.0)
    assert own.over_lower_bound == pytest.approx(4.5 / (4 * 0.95 + 3 * RESET))
