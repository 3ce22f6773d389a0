"""Which rollout, and which of its turns, a request belongs to. The server stores no conversations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

from benchmark.items import Item
from rollout_tasks.models.scripted.policies import is_judge_request, is_summary_request, text_of

FAULTY_CALL_PREFIX = "call_fault_"
WAITING_CALL_PREFIX = "call_wait_"
"""Ids of tool calls that a fault or a wait made up: their messages are not the script's turns."""
_MADE_UP = (FAULTY_CALL_PREFIX, WAITING_CALL_PREFIX)
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class SessionId:
    """Whose request it is."""

    role: Literal["rollout", "judge", "environment"]
    item_id: str | None
    index: int = 0
    attempt: int = 1


class Sessions:
    """Recognises sessions by header, else by the question in the first user message.

    The header is ``<run id>/<item id>/<index>/<attempt>`` from rollouts, with ``/environment`` behind it from their
    environments, and ``judge/<item id>`` from judges, their parts percent-encoded.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._by_question = {item.question.strip(): item.id for item in items}
        self._longest_first = sorted(self._by_question, key=len, reverse=True)

    def identify(self, header: str | None, messages: Sequence[Mapping[str, Any]]) -> SessionId:
        """Returns the session; its item is None if neither header nor question identifies it."""
        named = _from_header(header) if header else None
        if is_judge_request(messages):
            return SessionId("judge", named.item_id if named else None)
        if is_summary_request(messages):
            return replace(named, role="environment") if named else SessionId("environment", None)
        return named or SessionId("rollout", self._item_id(messages))

    def _item_id(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        text = next((text_of(message) for message in messages if message.get("role") == "user"), "")
        exact = self._by_question.get(text.strip())
        if exact is not None:
            return exact
        return next((self._by_question[question] for question in self._longest_first if question in text), None)


def turn_of(messages: Sequence[Mapping[str, Any]]) -> int:
    """Returns the number of the requested turn, from 0: how many of the script's turns there were before."""
    return sum(message.get("role") == "assistant" and not made_up(message) for message in messages)


def made_up(message: Mapping[str, Any], *prefixes: str) -> bool:
    """Whether a message is not one of the script's turns, for any reason or for the one with the given prefix."""
    calls = message.get("tool_calls") or ()
    return any(str(call.get("id")).startswith(prefixes or _MADE_UP) for call in calls)


def _from_header(header: str) -> SessionId | None:
    parts = [unquote(part) for part in header.split("/")]
    if len(parts) == 2 and parts[0] == "judge":
        return SessionId("judge", parts[1])
    if len(parts) == 4 and all(_COUNT.fullmatch(part) for part in parts[2:]):
        return SessionId("rollout", parts[1], int(parts[2]), int(parts[3]))
    if len(parts) == 5 and parts[4] == "environment" and all(_COUNT.fullmatch(part) for part in parts[2:4]):
        return SessionId("environment", parts[1], int(parts[2]), int(parts[3]))
    return None
