"""The exchange with Claude in Anthropic's Messages API: every call is answered, and each turn has a screenshot.

Its content blocks are sent back as they came, thinking included. Left out are older screenshots, and texts that are blank, which
the API writes now and then and always refuses. A zoom is answered with the part of the screen in full resolution. The answer to a
call that failed says why; the API allows no picture in it, so after one the screenshot stands behind the answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.agents.profiles.actions import PointerPosition, Zoom
from rollout_tasks.agents.profiles.anthropic_computer import TOOL, parse
from rollout_tasks.agents.profiles.conversation import EXPLANATION
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.dialogue import ActionOutcome, by_call
from rollout_tasks.agents.profiles.packaged_text import filled, read_text
from rollout_tasks.agents.profiles.pictures import SentPicture, part_of
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.reading import coordinates
from rollout_tasks.agents.profiles.reply import ComputerCall, Parsed
from rollout_tasks.models.base import Message, Reply
from rollout_tasks.models.sent_messages import PLACEHOLDER

NOT_DONE = "Not done: an earlier call of this message handed over to the user."
_CAN_ZOOM = frozenset({"computer_20251124"})
_POSITION = re.compile(r"(\d{1,5}) (\d{1,5})")


class MessagesDialogue:
    """A `Dialogue` in the Messages API."""

    def __init__(self, profile: Profile, values: Mapping[str, str], *, images: int | None) -> None:
        """Reads the profile's texts.

        Args:
            profile: Its rules.
            values: What replaces ``{instruction}``, ``{client_password}`` and ``{date}``.
            images: Screenshots in a prompt at most; a note stands where an older one was. None: all of them.

        Raises:
            TextUnreadable: A text's package is not installed, or lacks the text.
        """
        self._profile = profile
        self._images = images
        self._system = None if profile.prompts.system is None else filled(read_text(profile.prompts.system), values)
        self._task = filled(read_text(profile.prompts.task), values)
        self._messages: list[Message] = []
        self._answers: list[dict[str, Any]] = []
        self._corrections: list[Message] = []

    def tools(self, picture: SentPicture) -> Sequence[Mapping[str, Any]]:
        """See `Dialogue`."""
        width, height = picture.size
        tool = {
            "type": self._profile.computer_tool,
            "name": TOOL,
            "display_width_px": width,
            "display_height_px": height,
            "display_number": 1,
        }
        return [{**tool, "enable_zoom": True} if tool["type"] in _CAN_ZOOM else tool]

    def prompt(self, picture: SentPicture) -> list[Message]:
        """See `Dialogue`."""
        if not self._messages:
            if self._system is not None:
                self._messages.append({"role": "system", "content": self._system})
            self._messages.append({"role": "user", "content": [picture.block, _text(self._task)]})
        if self._answers:
            self._messages.append({"role": "user", "content": _with_screenshot(self._answers, picture)})
            self._answers = []
        self._messages = self._without_older_pictures()  # none comes back
        return [*self._messages, *self._corrections]

    def read(self, reply: Reply, picture: SentPicture) -> Parsed:
        """See `Dialogue`."""
        message = {**reply.message, "stop_reason": reply.finish_reason or None}
        return parse(message, coordinates(self._profile.places, picture))

    def add(self, picture: SentPicture, reply: Reply, parsed: Parsed, outcomes: Sequence[ActionOutcome]) -> None:
        """See `Dialogue`.

        Raises:
            ValueError: What a zoom has to show is not a picture.
        """
        self._messages.append(_without_blank_texts(reply.message))
        spanned = coordinates(self._profile.places, picture)
        self._answers = [_answer(call, of_call, spanned) for call, of_call in by_call(parsed.calls, outcomes)]
        self._corrections.clear()

    def correct(self, reply: Reply, problem: str) -> None:  # noqa: ARG002
        """See `Dialogue`. The reply itself is left out: its calls would have to be answered."""
        self._corrections.append({"role": "user", "content": [_text(EXPLANATION.format(problem=problem))]})

    def _without_older_pictures(self) -> list[Message]:
        """Returns the messages with the newest screenshots alone; only messages of the user hold any."""
        left = self._images
        sent: list[Message] = []
        for message in reversed(self._messages):
            if left is not None and message["role"] == "user":
                parts: list[dict[str, Any]] = []
                for part in reversed(message["content"]):
                    part, shown = _limited(part, left)
                    left -= shown
                    parts.insert(0, part)
                message = {**message, "content": parts}
            sent.insert(0, message)
        return sent


def _without_blank_texts(message: Message) -> Message:
    return {**message, "content": [block for block in message["content"] if not _is_blank(block)]}


def _is_blank(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _limited(part: dict[str, Any], most: int) -> tuple[dict[str, Any], int]:
    """Returns a part with at most so many screenshots, and how many it has."""
    if part["type"] == "tool_result":
        *texts, last = part["content"]
        last, shown = _limited(last, most)
        return {**part, "content": [*texts, last]}, shown
    if part["type"] != "image":
        return part, 0
    return (part, 1) if most > 0 else (_text(PLACEHOLDER), 0)


def _answer(call: ComputerCall, outcomes: Sequence[ActionOutcome], coordinates: Coordinates) -> dict[str, Any]:
    """Returns the answer to a call, without a screenshot."""
    answer = {"type": "tool_result", "tool_use_id": call.id}
    if not outcomes:
        return {**answer, "content": [_text(NOT_DONE)], "is_error": True}
    problem = next((outcome.problem for outcome in outcomes if outcome.problem), None)
    if problem is not None:
        return {**answer, "content": [_text(problem)], "is_error": True}
    said = _text("Success")
    for outcome in outcomes:
        seen = outcome.result.observation if outcome.result is not None else None
        match outcome.action:
            case PointerPosition():
                said = _text(_position(outcome, coordinates))
            case Zoom(left_top, right_bottom) if seen is not None and seen.images:
                return {**answer, "content": [said, part_of(seen.images[-1], left_top, right_bottom).block]}
    return {**answer, "content": [said]}


def _position(outcome: ActionOutcome, coordinates: Coordinates) -> str:
    """Returns where the pointer is, in what the model's numbers span."""
    printed = outcome.result.response.rpartition("\n")[2] if outcome.result is not None else ""
    found = _POSITION.fullmatch(printed.strip())
    if found is None:
        return "The position of the pointer is not known."
    x, y = coordinates.given((int(found[1]), int(found[2])))
    return f"X={x},Y={y}"


def _with_screenshot(answers: Sequence[dict[str, Any]], picture: SentPicture) -> list[dict[str, Any]]:
    """Returns answers with one screenshot: in the last that can have it, or behind them. After zooms alone there is none."""
    failed = [answer for answer in answers if "is_error" in answer]
    places = [place for place, answer in enumerate(answers) if answer not in failed and len(answer["content"]) == 1]
    with_it = list(answers)
    if answers[-1] in failed or (failed and not places):
        with_it.append(picture.block)
    elif places:
        last = answers[places[-1]]
        with_it[places[-1]] = {**last, "content": [*last["content"], picture.block]}
    return with_it


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
