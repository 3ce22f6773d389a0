"""What differs between protocols for the agent's loop: the prompt, reading a reply, and the answer to an unusable one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollout_tasks.agents.profiles.actions import Action
from rollout_tasks.agents.profiles.pictures import SentPicture
from rollout_tasks.agents.profiles.reply import ComputerCall, Parsed
from rollout_tasks.environments.base import ToolResult
from rollout_tasks.models.base import Message, Reply


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What became of one action of a reply."""

    action: Action
    result: ToolResult | None
    """None for words to the user, which do not concern the environment."""

    @property
    def problem(self) -> str:
        """Why the action failed; empty if it did not."""
        if self.result is None or self.result.status != "failed":
            return ""
        return self.result.response.strip() or "The action failed."


class Dialogue(Protocol):
    """One episode's exchange with the model."""

    def tools(self, picture: SentPicture) -> Sequence[Mapping[str, Any]]:
        """Returns the tools as the API gets them; empty if the prompt's text describes the actions."""

    def prompt(self, picture: SentPicture) -> list[Message]:
        """Returns the messages to send.

        Args:
            picture: What is seen now.
        """

    def read(self, reply: Reply, picture: SentPicture) -> Parsed:
        """Reads a reply.

        Args:
            reply: The reply, which was not cut off.
            picture: What the model saw.

        Raises:
            UnusableReplyError: It holds no action that can be carried out.
        """

    def add(self, picture: SentPicture, reply: Reply, parsed: Parsed, outcomes: Sequence[ActionOutcome]) -> None:
        """Adds a step that was carried out; corrections before it are forgotten.

        Args:
            picture: What the model saw.
            reply: The reply.
            parsed: What was read of it.
            outcomes: What became of each of its actions, in order.
        """

    def correct(self, reply: Reply, problem: str) -> None:
        """Tells the model, until its next usable reply, why a reply was not."""


def by_call(
    calls: Sequence[ComputerCall], outcomes: Sequence[ActionOutcome]
) -> Iterator[tuple[ComputerCall, Sequence[ActionOutcome]]]:
    """Yields each call of a reply with what became of its actions. What came after a call for the user was not carried out."""
    start = 0
    for call in calls:
        end = start + len(call.actions)
        yield call, outcomes[start:end]
        start = end
