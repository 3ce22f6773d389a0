"""Waits for what a turn needs to see: how long a desktop takes to open a window is not known in advance.

Until the text is visible, the model asks to wait, as a model that sees the screen would. Those turns are not the script's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.models.base import STATE_HEADING
from rollout_tasks.models.scripted.policies import text_of
from rollout_tasks.models.scripted.replies import tool_call
from rollout_tasks.models.scripted.sessions import WAITING_CALL_PREFIX, made_up

TOOL = "desktop_control"
PAUSES = (0.25, 0.5, 1.0, 2.0, *[4.0] * 15)
"""Seconds before each next look; about a minute in total."""
_NO_PLACE = " It is there, but without coordinates to point at: --observation-type a11y_tree has them."


def is_seen(text: str, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the text is in the last observation's description."""
    return text in state_of(messages)


def state_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Returns the last observation's description in words."""
    since = itertools.takewhile(lambda message: message.get("role") != "assistant", reversed(messages))
    latest = next((message for message in since if message.get("role") == "tool"), messages[-1])
    before, heading, state = text_of(latest).partition(STATE_HEADING)
    return state if heading else before


def waiting_message(text: str, request: Mapping[str, Any], number: int) -> dict[str, Any] | str:
    """Returns the assistant message that asks to wait.

    Args:
        text: The text that is waited for.
        request: The request; its conversation shows how long the wait is already.
        number: The number of the script's turn that waits.

    Returns:
        The message, or a sentence why there is none.
    """
    waits = _waits(request["messages"])
    if waits == len(PAUSES):
        waited = f"The scripted model waited {sum(PAUSES):.0f} s to see {text!r} before turn {number + 1}, and did not."
        return waited + _NO_PLACE if is_seen(text, request["messages"]) else waited
    if TOOL not in _offered(request):
        return f"The scripted model cannot wait to see {text!r} before turn {number + 1}: there is no tool {TOOL}."
    arguments = json.dumps({"action": "wait", "pause": PAUSES[waits]})
    call = tool_call(f"{WAITING_CALL_PREFIX}{number}_{waits}", TOOL, arguments)
    return {"role": "assistant", "content": f"I do not see {text!r} yet.", "tool_calls": [call]}


def _waits(messages: Sequence[Mapping[str, Any]]) -> int:
    """Returns how many of the assistant's last messages only waited."""
    said = [message for message in reversed(messages) if message.get("role") == "assistant"]
    return sum(1 for _ in itertools.takewhile(lambda message: made_up(message, WAITING_CALL_PREFIX), said))


def _offered(request: Mapping[str, Any]) -> set[str]:
    tools = request.get("tools")
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return {str(function.get("name")) for function in functions if isinstance(function, dict)}
