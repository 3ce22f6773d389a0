"""What a session remembers between calls, so that clients of other APIs send back exactly what the model wrote."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rollout_tasks.models.base import THINKING_FIELDS, Message, Reply

MOST_RESPONSES = 1_000
MOST_TOOL_CALLS = 20_000
_Kept = TypeVar("_Kept")


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages up to a reply, that reply included."""

    messages: tuple[Message, ...]
    size: int
    """Bytes of the requests that they came in."""


class _Newest(Generic[_Kept]):
    """The newest values by their ids, up to a number of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[str, _Kept] = OrderedDict()

    def keep(self, name: str, value: _Kept) -> None:
        self._values[name] = value
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def get(self, name: str) -> _Kept | None:
        return self._values.get(name)


class SessionMemory:
    """One session's memory."""

    def __init__(self) -> None:
        self.conversations: _Newest[Conversation] = _Newest(MOST_RESPONSES)
        """By the id of the response, for ``previous_response_id``."""
        self.thinking_field = THINKING_FIELDS[-1]
        """Where thinking that a client sends back goes: where the engine wrote it last."""
        self._arguments: _Newest[str] = _Newest(MOST_TOOL_CALLS)

    def keep(self, reply: Reply) -> None:
        """Keeps how the model wrote what other APIs would write otherwise."""
        for call in reply.tool_calls:
            self._arguments.keep(call.id, call.arguments)
        self.thinking_field = next(iter(reply.thinking), self.thinking_field)

    def arguments(self, call_id: str, value: Any) -> str:
        """Returns the arguments of a call as text.

        An API with arguments as JSON values loses how the model wrote them. Written otherwise, the next prompt would not
        begin with the tokens that were sampled.

        Args:
            call_id: The call's id.
            value: Its arguments, as the client sends them back.
        """
        written = self._arguments.get(call_id)
        if written is not None:
            try:
                if json.loads(written or "{}") == value:
                    return written
            except (ValueError, RecursionError):
                pass
        return json.dumps(value)

    def written_arguments(self, call_id: str) -> str | None:
        """Returns the arguments of a call exactly as the model wrote them; None if the call is not known."""
        return self._arguments.get(call_id)
