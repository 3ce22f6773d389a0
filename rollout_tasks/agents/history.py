"""The conversation of an episode, and the policy that decides what of it is sent: the newest pictures, and thinking or not.

The conversation itself is never changed, and is recorded whole. The record of each reply says what its prompt lacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.base import Message, Reply
from rollout_tasks.models.sent_messages import KEPT_OF_CUT_OFF, LeftOut, pictures_in, sent_messages


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """How much of a conversation is sent.

    Pictures are dropped in steps of half the limit, not one by one: once there are more than the limit, so many of the
    oldest go that the prompt is between half the limit (plus one) and the limit until the next step. An endpoint with a
    prefix cache computes a prompt anew from its first change on. If every turn dropped a picture, it would compute all the
    pictures that stay in every turn; this way it does so in one turn out of several (five, at the limit of 10), and in
    the others only what is new. How many are dropped depends on nothing but how many there are, so there is no state
    to keep, and no picture comes back.
    """

    max_images: int | None = None
    """The most pictures in a prompt; None: all of them."""
    keep_thinking: bool = False
    """Whether the model gets its thinking of earlier turns back."""

    @classmethod
    def of(cls, config: ModelConfig) -> HistoryPolicy:
        """Returns the policy of a run's options."""
        return cls(config.max_images, config.keep_thinking)

    def left_out(self, pictures: int) -> LeftOut:
        """Returns what the next prompt lacks.

        Args:
            pictures: How many there are in the whole conversation.
        """
        most = pictures if self.max_images is None else self.max_images
        step = max(1, most // 2)
        too_many = max(0, pictures - most)
        return LeftOut(
            -(-too_many // step) * step,
            not self.keep_thinking,
            KEPT_OF_CUT_OFF,
            unreadable_arguments=True,
            empty_replies=True,
        )


class MessageHistory:
    """One episode's messages, and what the model thought before its own."""

    def __init__(self, policy: HistoryPolicy) -> None:
        """Is empty at first."""
        self._policy = policy
        self._messages: list[Message] = []
        self._thinking: dict[int, Mapping[str, str]] = {}
        self._cut_off: set[int] = set()
        self._pictures = 0

    def add(self, message: Message, reply: Reply | None = None) -> None:
        """Adds a message at the end.

        Args:
            message: Must not be changed afterwards.
            reply: For the model's own messages: what else is known of them.
        """
        if reply is not None and reply.thinking:
            self._thinking[len(self._messages)] = reply.thinking
        if reply is not None and reply.cut_off:
            self._cut_off.add(len(self._messages))
        self._messages.append(message)
        self._pictures += pictures_in(message)

    def prompt(self) -> tuple[list[Message], LeftOut]:
        """Returns the messages to send next, and what of the conversation they lack."""
        left_out = self._policy.left_out(self._pictures)
        return sent_messages(self._messages, self._thinking, left_out, self._cut_off), left_out
