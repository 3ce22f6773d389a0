"""Faults on demand: rules that say which request fails, how and how often. `fault_replies` makes the replies."""

from __future__ import annotations

import hashlib
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from rollout_tasks.models.scripted.json_files import read_json, validate
from rollout_tasks.models.scripted.sessions import SessionId


class FaultKind(StrEnum):
    """What happens instead of a good reply."""

    RATE_LIMIT = "rate_limit"
    """429 with Retry-After."""
    SERVER_ERROR = "server_error"
    """500."""
    UNAVAILABLE = "unavailable"
    """503, with Retry-After when the rule has one."""
    UNAUTHORIZED = "unauthorized"
    """401."""
    NOT_FOUND = "not_found"
    """404, as for a model that is not served."""
    CONTEXT_OVERFLOW = "context_overflow"
    """400 with code ``context_length_exceeded``."""
    HANG = "hang"
    """No reply for `seconds`, then 504."""
    SLOW = "slow"
    """The good reply, `seconds` late."""
    DISCONNECT = "disconnect"
    """The connection ends in the middle of the reply."""
    BAD_JSON = "bad_json"
    """200 with half a JSON document."""
    EMPTY_CHOICES = "empty_choices"
    """200 with no choice."""
    MISSING_CHOICES = "missing_choices"
    """200 without the field."""
    MALFORMED_ARGUMENTS = "malformed_arguments"
    """A tool call whose arguments are not JSON."""
    UNKNOWN_TOOL = "unknown_tool"
    """A call of a tool that was not offered."""


_WAITING = {FaultKind.HANG: 3600.0, FaultKind.SLOW: 1.0}
_RETRY_LATER = {FaultKind.RATE_LIMIT: 1.0, FaultKind.UNAVAILABLE: None}


class FaultRule(BaseModel):
    """Which requests fail and how. Omitted conditions match everything; the first rule that fires decides."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: FaultKind
    role: Literal["rollout", "judge"] | None = None
    item: str | None = None
    index: int | None = Field(None, ge=0)
    attempt: int | None = Field(None, ge=1)
    turn: int | None = Field(None, ge=0)
    times: int | None = Field(None, ge=1)
    """How often it happens to one item at most; None for no limit."""
    rate: float = Field(1.0, gt=0, le=1)
    """Share of the matching requests."""
    seconds: float | None = Field(None, ge=0)
    """For ``hang`` (default 3600) and ``slow`` (default 1)."""
    retry_after: float | None = Field(None, ge=0)
    """Seconds, for ``rate_limit`` (default 1) and ``unavailable`` (default none)."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.seconds is not None and self.kind not in _WAITING:
            raise ValueError(f"seconds has no meaning for {self.kind}")
        if self.retry_after is not None and self.kind not in _RETRY_LATER:
            raise ValueError(f"retry_after has no meaning for {self.kind}")
        return self

    @property
    def wait(self) -> float:
        """Seconds that the reply is delayed."""
        return self.seconds if self.seconds is not None else _WAITING.get(self.kind, 0.0)

    @property
    def retry_after_seconds(self) -> float | None:
        """The value of Retry-After; None for no such header."""
        return self.retry_after if self.retry_after is not None else _RETRY_LATER.get(self.kind)

    def matches(self, session: SessionId, turn: int) -> bool:
        """Whether the conditions other than rate and times are met."""
        return (
            self.role in (None, session.role)
            and self.item in (None, session.item_id)
            and self.index in (None, session.index)
            and self.attempt in (None, session.attempt)
            and self.turn in (None, turn)
        )


_RULES = TypeAdapter(list[FaultRule])


class Faults:
    """The rules in force, and how often each has fired."""

    def __init__(self, rules: list[FaultRule], seed: int = 0) -> None:
        self._rules = rules
        self._seed = seed
        self._fired: Counter[tuple[int, str | None]] = Counter()
        self._tries: Counter[tuple[SessionId, int]] = Counter()

    def draw(self, session: SessionId, turn: int) -> FaultRule | None:
        """Returns the rule that a request fails by, if any; depends on seed, session, turn and tries, not on other requests."""
        if not self._rules:
            return None
        self._tries[session, turn] += 1
        for number, rule in enumerate(self._rules):
            if rule.matches(session, turn) and self._fires(number, rule, session, turn):
                self._fired[number, session.item_id] += 1
                return rule
        return None

    def _fires(self, number: int, rule: FaultRule, session: SessionId, turn: int) -> bool:
        if rule.times is not None and self._fired[number, session.item_id] >= rule.times:
            return False
        return rule.rate == 1.0 or self._chance(number, session, turn) < rule.rate

    def _chance(self, number: int, session: SessionId, turn: int) -> float:
        """Returns a number in [0, 1) that only depends on the seed and the arguments."""
        what = repr((self._seed, number, session, turn, self._tries[session, turn]))
        return int.from_bytes(hashlib.blake2b(what.encode(), digest_size=8).digest(), "big") / 2**64


def parse_faults(values: Any, where: str) -> list[FaultRule]:
    """Validates a list of rules.

    Raises:
        UserError: Names `where`, the rule by its number from 0, and the field.
    """
    return validate(_RULES, values, where)


def read_faults(path: Path) -> list[FaultRule]:
    """Reads a JSON list of rules.

    Raises:
        UserError: The file cannot be read, is not JSON, or a rule is wrong.
    """
    return parse_faults(read_json(path, "faults file"), f"faults file {path}")
