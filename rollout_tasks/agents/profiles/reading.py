"""Reads a model's reply as its profile says: by the protocol's reader, with the coordinates that the profile means."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rollout_tasks.agents.profiles import qwen, thought_action_code, ui_tars
from rollout_tasks.agents.profiles.conversation import Said
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.pictures import SentPicture
from rollout_tasks.agents.profiles.profile import Places, Profile
from rollout_tasks.agents.profiles.reply import Parsed
from rollout_tasks.models.base import Reply

_READERS: Mapping[str, Callable[[str, Coordinates], Parsed]] = {
    "qwen": qwen.parse,
    "thought_action_code": thought_action_code.parse,
    "ui_tars": ui_tars.parse,
}
_NAMING_LINE = re.compile(r"^[ \t]{0,20}((?:action:|step|i will|i'll|now i).*)", re.MULTILINE | re.IGNORECASE)


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
        profile: Says which words name the action. A reply without such words has its first action's kind instead.
        keep_fields: Whether thinking in fields of its own is sent back.
    """
    action = parsed.said
    if profile.history.whole_line:
        line = _NAMING_LINE.search(parsed.thought)
        action = line[1].strip() if line else ""
    if not action:
        action = type(parsed.actions[0]).__name__.lower()
    fields = reply.thinking if keep_fields else None
    return Said(reply.text, action, parsed.thought, parsed.observation, fields)
