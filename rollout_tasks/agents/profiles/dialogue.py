"""What differs between protocols for the agent's loop: the prompt, reading a reply, and what an unusable one is answered with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rollout_tasks.agents.profiles.pictures import SentPicture
from rollout_tasks.agents.profiles.reply import Parsed
from rollout_tasks.models.base import Message, Reply


class Dialogue(Protocol):
    """One episode's exchange with the model."""

    def tools(self, picture: SentPicture) -> Sequence[Mapping[str, Any]]:
        """Returns what the API is told of tools; empty if the prompt's text describes the actions."""

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

    def add(self, picture: SentPicture, reply: Reply, parsed: Parsed) -> None:
        """Adds a step that is carried out; corrections before it are forgotten."""

    def correct(self, reply: Reply, problem: str) -> None:
        """Tells the model, until its next usable reply, why a reply was not."""
