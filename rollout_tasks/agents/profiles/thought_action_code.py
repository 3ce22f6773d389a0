"""Thought, action and code: sections under ``##``, the last fenced block is pyautogui code. OpenCUA, Kimi and EvoCUA S1."""

from __future__ import annotations

import re
import textwrap

from rollout_tasks.agents.profiles.code_calls import read_calls
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.pyautogui_calls import actions_of
from rollout_tasks.agents.profiles.reply import Parsed, UnusableReplyError, bounded, until_the_end, without_thinking

_FENCE = "```"
_LANGUAGE = re.compile(r"(?:python3?|py|code)?(?=\s|$)|(?:python|code)", re.IGNORECASE)
_HEADINGS = (
    re.compile(r"^#{1,4}[ \t]{0,20}(Observation|Thought|Action|Code)[ \t]{0,20}(?::|$)", re.MULTILINE),
    re.compile(r"^[ \t]{0,20}(Observation|Thought|Action|Code)[ \t]{0,20}:", re.MULTILINE),
)
"""Marked ones, and those of models that leave the marks out."""


def parse(reply: str, coordinates: Coordinates) -> Parsed:
    """Reads a reply. Its code is only read, never run: known calls with literal arguments.

    Args:
        reply: The whole text.
        coordinates: Spans (1, 1) for shares of the screen, or the resized picture. Shares are understood in both.

    Raises:
        UnusableReplyError: It holds no action that can be carried out.
    """
    before, code = _code(without_thinking(bounded(reply)))
    sections = _sections(before)
    actions = until_the_end(action for call in read_calls(code) for action in actions_of(call, coordinates))
    thought, said, observation = (sections.get(name, "") for name in ("thought", "action", "observation"))
    return Parsed(actions, thought, said, observation)


def _code(text: str) -> tuple[str, str]:
    """Returns the text before the last fenced block, and the code in the block."""
    pieces = text.split(_FENCE)
    if len(pieces) < 3:
        raise UnusableReplyError("The reply has no block of code between two lines of ```.")
    if len(pieces) % 2 == 0:
        raise UnusableReplyError("The last block of code does not end with ```.")
    block = pieces[-2]
    language = _LANGUAGE.match(block)
    return _FENCE.join(pieces[:-2]), textwrap.dedent(block[language.end() if language else 0 :]).strip()


def _sections(text: str) -> dict[str, str]:
    """Returns the text under the first heading of each kind; without any heading, all of it is the thought."""
    headings = next(filter(None, (list(pattern.finditer(text)) for pattern in _HEADINGS)), None)
    if headings is None:
        return {"thought": text.strip()}
    sections: dict[str, str] = {}
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    for heading, end in zip(headings, ends, strict=True):
        sections.setdefault(heading[1].lower(), text[heading.end() : end].strip())
    return sections
