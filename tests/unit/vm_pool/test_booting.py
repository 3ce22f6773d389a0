"""What is said while VMs boot."""

from __future__ import annotations

import pytest

from vm_pool.booting import SAY_EVERY_SECONDS, BootProgress
from vm_pool.states import VMState

BOOTING, FREE, LEASED, ERROR = VMState.INITIALIZING, VMState.FREE, VMState.LEASED, VMState.ERROR


@pytest.mark.parametrize(
    ("states", "after", "said"),
    [
        ([BOOTING, BOOTING], 1.0, None),
        ([BOOTING, BOOTING], SAY_EVERY_SECONDS, "0 of 2 VMs are up, 2 booting (5.0 s)"),
        ([FREE, BOOTING, ERROR], 7.25, "1 of 3 VMs are up, 1 booting, 1 in quarantine (7.2 s)"),
        ([FREE, LEASED], 0.4, "all 2 VMs are up after 0.4 s"),
        ([FREE], 2, "its VM is up after 2.0 s"),
    ],
)
def test_a_sentence_comes_now_and_then_and_at_the_end(states: list[VMState], after: float, said: str | None) -> None:
    assert BootProgress(100.0).sentence(states, 100.0 + after) == said


def test_nothing_more_is_said_once_all_were_up() -> None:
    progress = BootProgress(0.0)
    assert progress.sentence([FREE], 1.0) is not None
    assert progress.done
    assert progress.sentence([BOOTING], 100.0) is None


def test_it_is_not_said_again_at_once() -> None:
    progress = BootProgress(0.0)
    assert progress.sentence([BOOTING], 6.0) is not None
    assert progress.sentence([BOOTING], 7.0) is None
    assert progress.sentence([BOOTING], 11.0) is not None
