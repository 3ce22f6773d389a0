"""Puts the places of UI-TARS 1.5's own replies between its box tokens, as it was trained to see them in its history."""

from __future__ import annotations

import re

_ACTION = "Action: "
_PLACE = re.compile(r"((?:start|end)_box=')(\(\d+,\d+\))(')")


def with_box_tokens(reply: str) -> str:
    """Returns a reply as it is sent back; of one without an action that has a place, only blanks around it go."""
    reply = reply.strip()
    if _ACTION not in reply or "start_box=" not in reply:
        return reply
    thought, *actions = reply.split(_ACTION)
    return (
        thought + _ACTION + "\n\n".join(_PLACE.sub(r"\1<|box_start|>\2<|box_end|>\3", one.strip()) for one in actions)
    )
