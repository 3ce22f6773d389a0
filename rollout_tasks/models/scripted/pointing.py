"""Finds where a script clicks in the last observation: a call may have ``at`` instead of ``x`` and ``y``.

``"at": "[push-button] OK"`` is the middle of the first element whose line has that text; ``"at": ["Microsoft Bing",
"[push-button] More actions"]`` that of the first such element after one with the text before it; ``"at": "[table-cell] B5"`` a
cell of a spreadsheet, empty or not. The observation must contain coordinates: its type is ``a11y_tree``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.models.scripted.scripts import ScriptedCall, Turn
from rollout_tasks.models.scripted.wait_turns import state_of

KEY = "at"
_CELL = re.compile(r"\[table-cell\] ([A-Z]{1,3})([0-9]{1,7})")
_PLACE = re.compile(r" @ \((-?\d+), (-?\d+)\)$")


def unseen(turn: Turn, messages: Sequence[Mapping[str, Any]]) -> str:
    """Returns the first thing that the turn points at and that is not visible; empty if everything is."""
    state = state_of(messages)
    for call in turn.tool_calls:
        if KEY in call.arguments and place(_path(call), state) is None:
            return " after ".join(reversed(_path(call)))
    return ""


def with_places(turn: Turn, messages: Sequence[Mapping[str, Any]]) -> Turn:
    """Returns the turn with coordinates; everything that it points at must be visible."""
    state = state_of(messages)
    return turn.model_copy(update={"tool_calls": tuple(_placed(call, state) for call in turn.tool_calls)})


def place(path: Sequence[str], state: str) -> tuple[int, int] | None:
    """Returns where the element at the end of a path is; None if it is not visible, or has no coordinates."""
    if len(path) == 1 and (cell := _CELL.fullmatch(path[0])):
        return _cell(cell[1], cell[2], state)
    lines = iter(state.splitlines())
    line = ""
    for number, text in enumerate(path, 1):
        wanted = (one for one in lines if text in one and (number < len(path) or _PLACE.search(one)))
        if not (line := next(wanted, "")):
            return None
    found = _PLACE.search(line)
    return (int(found[1]), int(found[2])) if found else None


def _cell(column: str, row: str, state: str) -> tuple[int, int] | None:
    """Returns where a spreadsheet's column and row meet, from the lines that say where these are."""
    columns = re.search(rf"^ *\[columns\] (?:.*, )?{column} @ (-?\d+)", state, re.MULTILINE)
    rows = re.search(rf"^ *\[rows?\] (?:.*, )?{row} @ (-?\d+)", state, re.MULTILINE)
    return (int(columns[1]), int(rows[1])) if columns and rows else None


def _placed(call: ScriptedCall, state: str) -> ScriptedCall:
    found = place(_path(call), state) if KEY in call.arguments else None
    if found is None:
        return call
    others = {name: value for name, value in call.arguments.items() if name != KEY}
    return call.model_copy(update={"arguments": {"x": found[0], "y": found[1], **others}})


def _path(call: ScriptedCall) -> list[str]:
    value = call.arguments[KEY]
    return [value] if isinstance(value, str) else list(value)
