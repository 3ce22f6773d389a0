"""The exchange with Claude in Anthropic's Messages API: each call of its computer tool is answered with a screenshot.

Its content blocks are sent back as they came, thinking included; only older screenshots are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.agents.profiles.anthropic_computer import TOOL, parse
from rollout_tasks.agents.profiles.conversation import EXPLANATION
from rollout_tasks.agents.profiles.packaged_text import filled, read_text
from rollout_tasks.agents.profiles.pictures import SentPicture
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.reading import coordinates
from rollout_tasks.agents.profiles.reply import Call, Parsed
from rollout_tasks.models.base import Message, Reply
from rollout_tasks.models.sent_messages import PLACEHOLDER


class MessagesDialogue:
    """A `Dialogue` in the Messages API."""

    def __init__(self, profile: Profile, values: Mapping[str, str], *, images: int | None) -> None:
        """Reads the profile's texts.

        Args:
            profile: Its rules.
            values: What stands in the place of ``{instruction}``, ``{client_password}`` and ``{date}``.
            images: Screenshots in a prompt at most; a note stands where an older one was. None: all of them.

        Raises:
            TextUnreadable: A text's package is not installed, or lacks the text.
        """
        self._profile = profile
        self._images = images
        self._system = None if profile.prompts.system is None else filled(read_text(profile.prompts.system), values)
        self._task = filled(read_text(profile.prompts.task), values)
        self._messages: list[Message] = []
        self._calls: Sequence[Call] = ()
        self._corrections: list[Message] = []

    def tools(self, picture: SentPicture) -> Sequence[Mapping[str, Any]]:
        """See `Dialogue`."""
        width, height = picture.size
        return [
            {
                "type": self._profile.computer_tool,
                "name": TOOL,
                "display_width_px": width,
                "display_height_px": height,
                "display_number": 1,
            }
        ]

    def prompt(self, picture: SentPicture) -> list[Message]:
        """See `Dialogue`."""
        if not self._messages:
            if self._system is not None:
                self._messages.append({"role": "system", "content": self._system})
            self._messages.append({"role": "user", "content": [_picture(picture), _text(self._task)]})
        if self._calls:
            results = [_result(call, picture) for call in self._calls]
            self._messages.append({"role": "user", "content": results})
            self._calls = ()
        return [*self._without_older_pictures(), *self._corrections]

    def read(self, reply: Reply, picture: SentPicture) -> Parsed:
        """See `Dialogue`."""
        message = {**reply.message, "stop_reason": reply.finish_reason or None}
        return parse(message, coordinates(self._profile.places, picture))

    def add(self, picture: SentPicture, reply: Reply, parsed: Parsed) -> None:  # noqa: ARG002
        """See `Dialogue`."""
        self._messages.append(reply.message)
        self._calls = parsed.calls
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


def _limited(part: dict[str, Any], most: int) -> tuple[dict[str, Any], int]:
    """Returns a part with at most so many screenshots, and how many it has."""
    if part["type"] == "tool_result":
        text, picture = part["content"]
        picture, shown = _limited(picture, most)
        return {**part, "content": [text, picture]}, shown
    if part["type"] != "image":
        return part, 0
    return (part, 1) if most > 0 else (_text(PLACEHOLDER), 0)


def _result(call: Call, picture: SentPicture) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": [_text("Success"), _picture(picture)]}


def _picture(picture: SentPicture) -> dict[str, Any]:
    head, _, data = picture.url.partition(";base64,")
    source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "image", "source": source}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
