"""What the bench of the desktop service makes of what its clients noted."""

from __future__ import annotations

from scripts.bench.desktop_service import shared


def noted(at: float, fence: int, vm: str = "vm-1", event: str = "acted") -> dict[str, object]:
    return {"at": at, "event": event, "vm": vm, "fence": fence}


def test_a_desktop_that_one_lease_uses_after_the_other_is_not_shared() -> None:
    events = [noted(3, 2, event="acquired"), noted(1, 1), noted(2, 1), noted(4, 2), noted(2.5, 7, "vm-2")]

    assert shared(events) == []


def test_an_act_of_an_earlier_lease_means_that_two_had_the_desktop() -> None:
    assert shared([noted(1, 1), noted(2, 2, event="acquired"), noted(3, 1)]) == ["vm-1: fence 1 after 2"]
    assert shared([noted(1, 1), noted(2, 2), noted(3, 1, event="released")]) == []
