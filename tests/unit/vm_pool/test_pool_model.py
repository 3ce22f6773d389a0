"""The model of lease, host and server, searched exhaustively; and mistakes planted in it, each of which the search must find.

Larger searches by hand: ``python -m tests.unit.vm_pool.system_model num_vms=1 wants=1,1 crashes=1 losses=1``.
"""

from __future__ import annotations

import pytest

from tests.state_search import Violation, explore
from tests.unit.vm_pool.system_model import Budget, System


@pytest.mark.parametrize(
    ("wants", "budget"),
    [
        ((1, 1), Budget(deaths=1)),
        ((1, 1), Budget(losses=1)),
        ((1, 1), Budget(pauses=1)),
        ((1, 1), Budget(host_deaths=1)),
        ((1, 1), Budget(failures=1)),
        ((1,), Budget(host_deaths=1, stops=1)),
        ((1,), Budget(crashes=1)),
    ],
    ids=str,
)
def test_nothing_that_must_not_be_can_be_reached(wants: tuple[int, ...], budget: Budget) -> None:
    system = System(1, wants)
    assert explore(system, system.start(budget)).states > 100


def test_two_vms_are_both_lent_and_both_come_back() -> None:
    system = System(2, (1,))
    assert explore(system, system.start(Budget())).states > 100


@pytest.mark.parametrize(
    ("flaws", "wants", "budget", "found"),
    [
        (("trusts any server",), (2,), Budget(crashes=1), "somebody used before"),
        (("believes a new server",), (2,), Budget(crashes=1), "somebody used before"),
        (("keeps what is being reset",), (2,), Budget(crashes=1, losses=1), "somebody used before"),
        (("keeps the gate open",), (1, 1), Budget(pauses=1), "a and b reach VM 0 at once"),
        (("trusts what a successor left",), (1,), Budget(host_deaths=1, stops=1), "at a gate that leads nowhere"),
        (("forgets the due", "sees no dead"), (1, 1), Budget(deaths=1), "never settles"),
    ],
    ids=str,
)
def test_a_planted_mistake_is_found(flaws: tuple[str, ...], wants: tuple[int, ...], budget: Budget, found: str) -> None:
    system = System(1, wants, frozenset(flaws))
    with pytest.raises(Violation, match=found):
        explore(system, system.start(budget))
