"""Reads a profile's texts, so that the profile has them itself, and checks the places in them.

A run's record has the texts that its model was given: workers do not read them from packages of their own, which may be of
another version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from rollout_tasks.agents.profiles.packaged_text import read_text
from rollout_tasks.agents.profiles.profile import PackagedText, Profile, Text
from rollout_tasks.errors import UserError

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_OF_RUNS = frozenset({"instruction", "client_password", "date"})
_OF_PROMPTS = _OF_RUNS | {"picture_width", "picture_height", "previous_actions"}
_OF_STEPS = frozenset({"number", "action", "thought", "observation", "reply"})
_OF_REPLIES = _OF_STEPS | {"code"}
"""By which prompts also say how a reply looks."""
_OF_ACTIONS = frozenset({"kind"})


def with_texts(profile: Profile) -> Profile:
    """Returns a profile with all its texts as text.

    Raises:
        TextUnreadable: A text's package is not installed, or lacks the text.
        UserError: The task has no placeholder for the instruction, or a text has one that is not filled in.
    """
    prompts = profile.prompts
    _check_placeholders(profile)
    read = {
        name: read_text(text)
        for name in ("system", "task", "step", "older_step")
        if (text := getattr(prompts, name)) is not None
    }
    if "{instruction}" not in read["task"]:
        raise UserError("prompts.task: must contain {instruction}: without it, the model would not know its task")
    return profile.model_copy(update={"prompts": prompts.model_copy(update=read)})


def _check_placeholders(profile: Profile) -> None:
    prompts = profile.prompts
    of_prompts = _OF_RUNS if profile.computer_tool is not None else _OF_PROMPTS
    filled_in: tuple[tuple[str, Text | None, Set[str]], ...] = (
        ("system", prompts.system, of_prompts),
        ("task", prompts.task, of_prompts),
        ("step", prompts.step, _OF_STEPS),
        ("older_step", prompts.older_step, _OF_STEPS),
        ("no_older_steps", prompts.no_older_steps, frozenset()),
        ("unnamed_action", prompts.unnamed_action, _OF_ACTIONS),
    )
    for name, text, filled in filled_in:
        for placeholder in () if text is None else _placeholders(text):
            if placeholder not in filled:
                may = ", ".join(f"{{{one}}}" for one in sorted(filled))
                raise UserError(
                    f"prompts.{name}: the placeholder {{{placeholder}}} is not filled in with the protocol {profile.protocol}"
                    + (f"; it may contain {may}" if may else "")
                )


def _placeholders(text: Text) -> Iterator[str]:
    """Yields the names of placeholders in a text.

    Braces may also be meant as such, as where a prompt says how a reply looks: ``{action}``. So of one's own text only names that
    runs fill in count; of a package's, where a name without a value becomes a placeholder, all but those of replies.
    """
    if isinstance(text, tuple):
        for part in text:
            yield from _placeholders(part)
        return
    for placeholder in _PLACEHOLDER.findall(read_text(text)):
        if placeholder in _OF_PROMPTS or (isinstance(text, PackagedText) and placeholder not in _OF_REPLIES):
            yield placeholder
