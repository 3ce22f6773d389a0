"""Reads a model's reply as its profile says: by the protocol's reader, with the coordinates that the profile means."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rollout_tasks.agents.profiles import qwen, thought_action_code, ui_tars
from rollout_tasks.agents.profiles.actions import Action, Click, Drag, Move, Press, Type
from rollout_tasks.agents.profiles.conversation import Said
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.packaged_text import filled
from rollout_tasks.agents.profiles.pictures import SentPicture
from rollout_tasks.agents.profiles.profile import Places, Profile
from rollout_tasks.agents.profiles.reply import Parsed
from rollout_tasks.models.base import Reply

_READERS: Mapping[str, Callable[[str, Coordinates], Parsed]] = {
    "qwen": qwen.parse,
    "thought_action_code": thought_action_code.parse,
    "ui_tars": ui_tars.parse,
}
_NAMING_LINE = re.compile(r"^[ \t]{0,20}(action:.*)", re.MULTILINE | re.IGNORECASE)
_WHOLE_LINE = re.compile(r"^[ \t]{0,20}((?:action:|step|i will|i'll|now i).*)", re.MULTILINE | re.IGNORECASE)
_HEADING = "Action:"
_CLICKS = {1: "click", 2: "doubleClick", 3: "tripleClick"}


def read(text: str, profile: Profile, picture: SentPicture) -> Parsed:
    """Reads a reply.

    Args:
        text: All of it.
        profile: Says how.
        picture: What the model saw.

    Raises:
        UnusableReplyError: It holds no action that can be carried out.
    """
    return _READERS[profile.protocol](text, coordinates(profile.places, picture))


def coordinates(places: Places, picture: SentPicture) -> Coordinates:
    """Returns what the model's numbers span, for one picture."""
    spans: dict[str, tuple[float, float]] = {"screen": picture.screen, "picture": picture.size, "shares": (1, 1)}
    if places.grid is not None:
        spans["grid"] = places.grid
    if places.resize is not None:
        spans["resized"] = places.resize.resizing.size(*picture.size)
    return Coordinates(picture.screen, spans[places.span], places.rounding)


def said(reply: Reply, parsed: Parsed, profile: Profile, *, keep_fields: bool) -> Said:
    """Returns the parts of a reply, as later prompts may show them.

    Args:
        reply: The reply.
        parsed: What was read of it.
        profile: Says which words name the action. For a reply without such words it has others.
        keep_fields: Whether thinking in fields of its own is sent back.
    """
    action = parsed.said
    if profile.protocol == "qwen":
        action = _named_in(parsed.thought, whole_line=profile.history.whole_line)
    if not action:
        action = filled(profile.prompts.unnamed_action, {"kind": _kind(parsed.actions[0])})
    fields = reply.thinking if keep_fields else None
    return Said(reply.text, action, parsed.thought, parsed.observation, fields)


def _named_in(text: str, *, whole_line: bool) -> str:
    line = (_WHOLE_LINE if whole_line else _NAMING_LINE).search(text)
    if line is None:
        return ""
    return line[1].strip() if whole_line else line[1].rpartition(_HEADING)[2].strip()


def _kind(action: Action) -> str:
    """Returns pyautogui's name of an action, or the name of its class."""
    match action:
        case Click(button=button, count=count):
            return _CLICKS.get(count, "click") if button == "left" else f"{button}Click"
        case Type():
            return "typewrite"
        case Press(keys=keys):
            return "press" if len(keys) == 1 else "hotkey"
        case Move():
            return "moveTo"
        case Drag():
            return "dragTo"
    return type(action).__name__.lower()
