"""Messages of Chat Completions, checked: those formats of conversations hold these and no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from rollout_tasks.models.base import Message
from rollout_tasks.training.scored_rollouts import OtherApi
from rollout_tasks.trajectories.writer import FILE_KEY

Role = Literal["system", "developer", "user", "assistant", "tool"]
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_WITH_PICTURES = frozenset({"user", "tool"})
_OF_OTHER_APIS = frozenset(
    {
        *("computer_screenshot", "input_image", "input_text", "output_text"),
        *("image", "redacted_thinking", "thinking", "tool_result", "tool_use"),
    }
)
"""Types of parts of messages."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a message."""

    name: str
    """As in `CalledEpisode.pictures`."""
    detail: str = ""
    """How closely the model looked at it, if the agent said so: ``auto``, ``low`` or ``high``."""

    @property
    def kind(self) -> str:
        """Its file's ending, such as ``png``."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a tool as the model wrote it; `arguments` is text that may not be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message."""

    role: Role
    content: str | tuple[str | Picture, ...] | None
    """A text, or texts and pictures in order; None where the message has none."""
    calls: tuple[FunctionCall, ...] = ()
    answers: str = ""
    """The id of the call that a tool's message answers."""

    @property
    def parts(self) -> tuple[str | Picture, ...]:
        """Its texts and pictures in order."""
        return () if self.content is None else (self.content,) if isinstance(self.content, str) else self.content


def chat_message(message: Message) -> ChatMessage:
    """Reads a message.

    Raises:
        OtherApi: It is one of the Responses or the Messages API.
        ValueError: It cannot be one of Chat Completions.
    """
    role = message.get("role")
    if role not in _ROLES or "output" in message:
        if isinstance(message.get("type"), str) or "output" in message:
            raise OtherApi("its model was asked in the Responses API, and this format has messages of Chat Completions")
        raise ValueError(f"a message has the role {ascii(role)[:50]}")
    content = _content(message.get("content"))
    if (
        not isinstance(content, str)
        and role not in _WITH_PICTURES
        and any(isinstance(one, Picture) for one in content or ())
    ):
        raise ValueError(f"a message of the role {role} has a picture")
    calls = message.get("tool_calls") or ()
    return ChatMessage(
        cast("Role", role),
        content,
        tuple(map(_call, calls)) if role == "assistant" else (),
        _text(message.get("tool_call_id"), "a tool's message has no id of its call") if role == "tool" else "",
    )


def functions_of(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the functions that a model was offered.

    Raises:
        OtherApi: One is a tool of another kind.
        ValueError: One has no name.
    """
    found = []
    for tool in tools:
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            raise OtherApi(
                f"its model was offered a tool of the type {ascii(tool.get('type'))[:50]}, not only functions"
            )
        _text(function.get("name"), "a tool has no name")
        found.append(function)
    return found


def _content(content: Any) -> str | tuple[str | Picture, ...] | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"a message has {ascii(content)[:50]} as its content")
    return tuple(map(_part, content))


def _part(part: Any) -> str | Picture:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _OF_OTHER_APIS:
        raise OtherApi(f"its messages have parts of the type {kind}, and this format has messages of Chat Completions")
    if kind in {"text", "refusal"}:
        return _text(part.get(kind), "a text of a message is none")
    if kind != "image_url":
        raise ValueError(f"a message has a part of the type {ascii(kind)[:50]}")
    link = part.get("image_url")
    file = link.get("url") if isinstance(link, dict) else link
    if not isinstance(file, dict) or not isinstance(file.get(FILE_KEY), str):
        raise ValueError("a picture of a message is in no file")
    detail = link.get("detail") if isinstance(link, dict) else ""
    return Picture(file[FILE_KEY], detail if detail in {"auto", "low", "high"} else "")


def _call(call: Any) -> FunctionCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise ValueError("a message has a call of something other than a function")
    name = _text(function.get("name"), "a call has no name")
    return FunctionCall(_text(call.get("id"), "a call has no id"), name, _text(function.get("arguments") or "", ""))


def _text(value: Any, problem: str) -> str:
    if not isinstance(value, str):
        raise ValueError(problem or f"{ascii(value)[:50]} is no text")
    return value
