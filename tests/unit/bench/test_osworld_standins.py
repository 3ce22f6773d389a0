"""What the scripted model plays of a stand-in."""

from __future__ import annotations

from typing import Any

from benchmark.items import Item
from rollout_tasks.models.scripted.scripts import METADATA_KEY
from scripts.bench.osworld_standins import NOTHING, played
from tests.acceptance.osworld_standins import StandIn
from tests.acceptance.osworld_standins.made import DONE, turn


def _left_alone(first: str) -> Any:
    right = [turn("I look.", when=first), DONE]
    there = StandIn("a", {}, right, [DONE], "is not solved", shell=False)
    scripts = played(Item(id="a", question="Solve it.", answer=""), there, times=2).metadata[METADATA_KEY]
    assert scripts["0"] == scripts["1"] == right
    assert scripts["3"] == [DONE]
    return scripts["2"]


def test_doing_nothing_waits_for_what_the_solution_waits_for_first() -> None:
    assert _left_alone("[frame] a.png") == [NOTHING[0] | {"when": "[frame] a.png"}]
    assert _left_alone("") == NOTHING
