"""What the service answers, as values."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease as it stands."""

    lease_id: str
    state: Literal["waiting", "setting_up", "ready", "over", "ended"]
    fence: int | None
    """The lease's number; None while it waits."""
    vm_id: str | None
    item_id: str | None
    """None for a bare desktop."""
    question: str
    instructions: str
    """What a system prompt says about the environment."""
    tools: Sequence[Mapping[str, Any]]
    """In the format of Chat Completions."""
    turns: int
    max_turns: int
    place: int | None
    """Its place in the queue, from 1, while it waits; None if that is not known."""
    waiting: int | None
    """How many wait."""
    ttl_seconds: float
    """How long its client may be silent."""
    failure_class: str | None
    """Why it ended, if it failed."""
    error: str
    """The sentence with which it ended; empty while it goes on."""
    helped: bool = False
    """Whether a person used the desktop, too, in a view."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LeaseState:
        """Reads the service's reply."""
        end = values.get("end") or {}
        own = {name: values[name] for name in cls.__slots__ if name in values}
        return cls(**own, failure_class=end.get("failure_class"), error=str(end.get("error", "")))


@dataclass(frozen=True, slots=True)
class Observation:
    """What can be seen."""

    text: str
    screenshots: tuple[bytes, ...]
    """PNG files."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Observation:
        """Reads the service's reply."""
        return cls(str(values["text"]), tuple(base64.b64decode(one) for one in values["screenshots"]))


@dataclass(frozen=True, slots=True)
class Step:
    """What became of an act."""

    status: Literal["success", "failed"]
    response: str
    observation: Observation | None
    """None if the act showed nothing new."""
    turn: int
    """Which act of the lease it was, from 1."""
    over: str | None
    """How the episode ended with it: ``done``, ``fail`` or ``max_turns``; None while it goes on."""
    desktop_seconds: float
    """How long the desktop took."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Step:
        """Reads the service's reply."""
        shown = values["observation"]
        observation = None if shown is None else Observation.from_json(shown)
        names = ("status", "response", "turn", "over", "desktop_seconds")
        return cls(observation=observation, **{name: values[name] for name in names})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended."""

    score: float | None
    """In [0, 1]; None without an evaluation."""
    reward: float | None
    """The score; 0 where the agent failed; None where the infrastructure did: leave such an episode out."""
    ending: str | None
    turns: int
    failure_class: str | None
    error: str
    helped: bool = False
    """Whether a person used the desktop, too, in a view: then the score is not the agent's alone."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """Reads the service's reply."""
        return cls(**{name: values[name] for name in cls.__slots__ if name in values})
