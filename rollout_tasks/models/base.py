"""The contract between an agent and a model: messages and tools in, one reply out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.served import Served

Message = dict[str, Any]
"""A message or an item of any API: Chat Completions, Responses or Messages."""
THINKING_FIELDS = ("reasoning", "reasoning_content")
"""Where endpoints write a model's thinking in its message, if not in the text. Both names are in use, by some servers at once."""
THINKING_IN_PARTS = "reasoning_content"
"""The one of these that has thinking which an endpoint writes in parts of its message's content."""
CUT_OFF, FILTERED, REFUSED = "length", "content_filter", "refusal"
"""Why a reply ended (`Reply.finish_reason`) that is neither an answer nor a call; the first two are Chat Completions' words."""
STATE_HEADING = "Current state:"
"""The text in a message before an observation that is described in words."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted by the endpoint, and what it took to get them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0
    """HTTP requests made, retries included."""
    seconds: float = 0.0
    """Wall time spent waiting for the endpoint, retries and backoff included."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.requests + other.requests,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class RawToolCall:
    """A tool call as the model wrote it: `arguments` is text that may not even be JSON."""

    id: str
    name: str
    arguments: str
    extra_content: Mapping[str, Any] = field(default_factory=dict)
    """What the endpoint wants back with the call, in a field of this name: Gemini's signature of its thinking, for one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One turn of the model."""

    message: Message
    """The assistant message to append to the history."""
    text: str
    tool_calls: tuple[RawToolCall, ...]
    finish_reason: str
    usage: Usage
    served_by: str = ""
    """The name of the model that answered, as the endpoint gives it."""
    token_data: Mapping[str, Any] = field(default_factory=dict)
    """Token ids and log-probabilities where the endpoint gave them."""
    thinking: Mapping[str, str] = field(default_factory=dict)
    """What the model thought before it replied, by the fields (`THINKING_FIELDS`) in which the endpoint wrote it.

    It is not part of `message`, as endpoints differ: some refuse it in a request, others refuse calls of tools without it.
    """
    served: Served = field(default_factory=Served)
    """Which replica of a model pool answered, with which weights."""

    @property
    def cut_off(self) -> bool:
        """Whether the reply ended at a token limit: the run's, the endpoint's, or the end of the model's context."""
        return self.finish_reason == CUT_OFF

    @property
    def filtered(self) -> bool:
        """Whether the endpoint's content filter stopped the reply or took parts of it away."""
        return self.finish_reason == FILTERED

    @property
    def refused(self) -> bool:
        """Whether the endpoint ended the reply as a refusal: it would end each further one of this conversation, too."""
        return self.finish_reason == REFUSED


class ContextOverflow(RolloutFailure):
    """The prompt is longer than the model can take; ``model``, unless the agent knows that the model itself is to blame."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.MODEL, message)


class BoundModel(Protocol):
    """A model bound to one rollout's session."""

    session_id: str
    """Names the session to endpoints; printable ASCII."""

    def complete(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Asks for one turn; retries as the run's configuration says.

        Raises:
            ContextOverflow: The prompt is longer than the model can take.
            RolloutFailure: ``model`` if the endpoint refuses or its answer is invalid, ``model_overload`` if it stays
                overloaded, slow or unreachable in all tries.
        """


class Model(BoundModel, Protocol):
    """A model as agents get it, with what its calls cost."""

    def count(self, usage: Usage, *, turn: int, answered: bool) -> None:
        """Counts a call that was made in this session by other means, as by an agent that has its own client.

        Args:
            usage: What it took.
            turn: The agent's turn.
            answered: Whether it brought a reply.
        """

    def role(self, name: str) -> Model:
        """Returns a further model of the run (``--model-role``), in a session of its own; its calls are counted apart.

        Raises:
            ValueError: The run has none of this name.
        """
