"""The exchange with a model that writes its actions as text, in Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.agents.profiles.conversation import Conversation
from rollout_tasks.agents.profiles.dialogue import ActionOutcome
from rollout_tasks.agents.profiles.pictures import SentPicture
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.reading import read, said
from rollout_tasks.agents.profiles.reply import MOST_CHARACTERS, Parsed
from rollout_tasks.models.base import Message, Reply
from rollout_tasks.models.sent_messages import KEPT_OF_CUT_OFF


class TextDialogue:
    """A `Dialogue` whose prompts a conversation makes."""

    def __init__(self, profile: Profile, values: Mapping[str, str], *, images: int | None, keep_thinking: bool) -> None:
        """Reads the profile's texts.

        Args:
            profile: Its rules.
            values: What replaces ``{instruction}`` and ``{client_password}``.
            images: Pictures in a prompt at most; None: all of them.
            keep_thinking: Whether replies keep all their thinking, also that in fields of its own.

        Raises:
            TextUnreadable: A text's package is not installed, or lacks the text.
        """
        self._profile = profile
        self._keep_fields = keep_thinking
        self._conversation = Conversation(
            profile, values, images=images, keep_thinking=keep_thinking or profile.history.thinking
        )

    def tools(self, picture: SentPicture) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002
        """See `Dialogue`."""
        return ()

    def prompt(self, picture: SentPicture) -> list[Message]:
        """See `Dialogue`."""
        return self._conversation.prompt(picture)

    def read(self, reply: Reply, picture: SentPicture) -> Parsed:
        """See `Dialogue`."""
        return read(reply.text, self._profile, picture)

    def add(self, picture: SentPicture, reply: Reply, parsed: Parsed, outcomes: Sequence[ActionOutcome]) -> None:  # noqa: ARG002
        """See `Dialogue`. What became of actions is seen in the next picture; these models were trained to see nothing else."""
        self._conversation.add(picture, said(reply, parsed, self._profile, keep_fields=self._keep_fields))

    def correct(self, reply: Reply, problem: str) -> None:
        """See `Dialogue`. Of a reply that was cut off, or is too long to be read, only the beginning is sent back."""
        cut = reply.cut_off or len(reply.text) > MOST_CHARACTERS
        self._conversation.correct(reply.text[:KEPT_OF_CUT_OFF] if cut else reply.text, problem)
