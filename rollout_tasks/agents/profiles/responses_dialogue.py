"""The exchange with a model in the Responses API: its items are sent back as they came, with a screenshot for each turn.

All items are sent again in each turn: the endpoint keeps nothing that a prompt depends on, so the record has every prompt whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout_tasks.agents.profiles.conversation import EXPLANATION
from rollout_tasks.agents.profiles.dialogue import ActionOutcome
from rollout_tasks.agents.profiles.packaged_text import filled, read_text
from rollout_tasks.agents.profiles.pictures import SentPicture, empty_picture
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.reading import coordinates
from rollout_tasks.agents.profiles.reply import ComputerCall, Parsed
from rollout_tasks.agents.profiles.responses_computer import parse
from rollout_tasks.models.base import Message, Reply


@dataclass(slots=True)
class _Step:
    items: list[Message]
    """What the model wrote."""
    calls: Sequence[ComputerCall]
    problems: Sequence[str]
    """Why actions of it failed."""
    answers: list[Message] | None = None
    """What its calls are answered with; None until the next screenshot is there."""


class ResponsesDialogue:
    """A `Dialogue` in the Responses API."""

    def __init__(self, profile: Profile, values: Mapping[str, str], *, images: int | None, system: str) -> None:
        """Reads the profile's texts.

        Args:
            profile: Its rules.
            values: What replaces ``{instruction}`` and ``{client_password}``.
            images: Screenshots in a prompt at most, and at least two: the first, with the task, and the current one; older
                steps are left out whole. None: the endpoint leaves out what is too much.
            system: The guest's system, ``Ubuntu`` or ``Windows``.

        Raises:
            TextUnreadable: A text's package is not installed, or lacks the text.
        """
        self._profile = profile
        self._images = images
        self._environment = "windows" if system == "Windows" else "linux"
        self._system = None if profile.prompts.system is None else filled(read_text(profile.prompts.system), values)
        self._task = filled(read_text(profile.prompts.task), values)
        self._first: list[Message] = []
        self._steps: list[_Step] = []
        self._corrections: list[Message] = []

    def tools(self, picture: SentPicture) -> Sequence[Mapping[str, Any]]:
        """See `Dialogue`."""
        if self._profile.computer_tool == "computer":
            return [{"type": "computer"}]
        width, height = picture.size
        return [
            {
                "type": "computer_use_preview",
                "display_width": width,
                "display_height": height,
                "environment": self._environment,
            }
        ]

    def prompt(self, picture: SentPicture) -> list[Message]:
        """See `Dialogue`."""
        if not self._first:
            shown = {"type": "input_image", "image_url": picture.url}
            if self._system is not None:
                self._first.append({"role": "system", "content": self._system})
            self._first.append({"role": "user", "content": [shown, {"type": "input_text", "text": self._task}]})
        if self._steps and self._steps[-1].answers is None:
            self._steps[-1].answers = self._answered(self._steps[-1], picture)
        kept = self._steps if self._images is None else self._steps[-max(1, self._images - 1) :]
        items = [item for step in kept for item in (*step.items, *(step.answers or ()))]
        return [*self._first, *items, *self._corrections]

    def read(self, reply: Reply, picture: SentPicture) -> Parsed:
        """See `Dialogue`."""
        return parse(reply.message, coordinates(self._profile.places, picture))

    def add(self, picture: SentPicture, reply: Reply, parsed: Parsed, outcomes: Sequence[ActionOutcome]) -> None:  # noqa: ARG002
        """See `Dialogue`."""
        problems = [outcome.problem for outcome in outcomes if outcome.problem]
        self._steps.append(_Step(list(reply.message["output"]), parsed.calls, problems))
        self._corrections.clear()

    def correct(self, reply: Reply, problem: str) -> None:  # noqa: ARG002
        """See `Dialogue`. The reply itself is left out: its calls would have to be answered."""
        text = EXPLANATION.format(problem=problem)
        self._corrections.append({"role": "user", "content": [{"type": "input_text", "text": text}]})

    def _answered(self, step: _Step, picture: SentPicture) -> list[Message]:
        """Returns the answers to a step's calls. Safety checks are acknowledged: whoever starts a run lets the agent act.

        An answer is a picture and cannot say that an action failed, so a message says it. Each must have a picture, too: of
        several only the last has the screenshot, and the others have an empty one.
        """
        if self._profile.computer_tool == "computer":
            shown = {"type": "computer_screenshot", "image_url": picture.url, "detail": "original"}
        else:
            shown = {"type": "input_image", "image_url": picture.url}
        answers: list[Message] = [
            {
                "type": "computer_call_output",
                "call_id": call.id,
                "acknowledged_safety_checks": [
                    {"id": check.id, "code": check.code, "message": check.message} for check in call.safety_checks
                ],
                "output": shown if call is step.calls[-1] else {**shown, "image_url": empty_picture()},
            }
            for call in step.calls
        ]
        if step.problems:
            text = "\n".join(step.problems)
            answers.append({"role": "user", "content": [{"type": "input_text", "text": text}]})
        return answers
