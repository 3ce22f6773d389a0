"""A script that clicks on what it sees, wherever that is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rollout_tasks.agents.prompts import task_content
from rollout_tasks.environments.base import Observation
from rollout_tasks.models.scripted.pointing import place, unseen, with_places
from rollout_tasks.models.scripted.scripts import Turn

STATE = """\
[frame] Settings @ (900, 500)
  [label] Google @ (300, 100)
  [push-button] More actions @ (800, 100)
  [label] Microsoft Bing
  [push-button] More actions @ (800, 140)
  [label] twice @ (1, 1) @ (-5, 7)"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (["[push-button] More actions"], (800, 100)),
        (["Microsoft Bing", "[push-button] More actions"], (800, 140)),
        (["Google", "More actions", "More actions"], (800, 140)),
        (["twice"], (-5, 7)),
        (["Microsoft Bing"], None),
        (["More actions", "Google"], None),
        (["[push-button] Other"], None),
    ],
)
def test_the_first_element_after_those_before_it(path: list[str], found: tuple[int, int] | None) -> None:
    assert place(path, STATE) == found


SHEET = """\
  [table] Sheet1 @ (900, 500)
    [columns] A @ 62, B @ 105, AA @ 900
    [row] 1 @ 200: A1 - Name | B1 - Price
    [row] 12 @ 217: A12 - 3 (focused)
    [rows] 2 @ 230, 21 @ 247"""


@pytest.mark.parametrize(
    ("cell", "found"),
    [("A1", (62, 200)), ("AA12", (900, 217)), ("B2", (105, 230)), ("A21", (62, 247)), ("C1", None), ("A3", None)],
)
def test_a_cell_is_where_its_column_and_row_meet(cell: str, found: tuple[int, int] | None) -> None:
    assert place([f"[table-cell] {cell}"], SHEET) == found


def turn(*arguments: dict[str, Any]) -> Turn:
    calls = [{"name": "desktop_mouse_click", "arguments": one} for one in arguments]
    return Turn.model_validate({"tool_calls": calls})


def seeing(state: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": task_content("Do it.", Observation(state, ()))}]


def test_coordinates_take_the_place_of_texts() -> None:
    given = turn(
        {"at": "Google", "button": "right"}, {"x": 1, "y": 2}, {"at": ["Microsoft Bing", "More"], "num_clicks": 2}
    )

    placed = with_places(given, seeing(STATE))

    assert unseen(given, seeing(STATE)) == ""
    assert [call.arguments for call in placed.tool_calls] == [
        {"x": 300, "y": 100, "button": "right"},
        {"x": 1, "y": 2},
        {"x": 800, "y": 140, "num_clicks": 2},
    ]


def test_what_is_not_seen_is_named() -> None:
    assert unseen(turn({"at": "Google"}, {"at": ["Bing", "Less"]}), seeing(STATE)) == "Less after Bing"
    assert unseen(turn({"at": "Google"}), seeing("[label] Google")) == "Google"


@pytest.mark.parametrize("at", ["", [], [""], 3, [3], {"x": 1}, None])
def test_only_texts_can_be_pointed_at(at: object) -> None:
    with pytest.raises(ValidationError, match="at must be a text, or a list of texts"):
        turn({"at": at})
