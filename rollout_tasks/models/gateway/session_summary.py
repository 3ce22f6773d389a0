"""What a session of the gateway may use, and what is said of it and its calls."""

from __future__ import annotations

from dataclasses import dataclass

from rollout_tasks.errors import FailureClass
from rollout_tasks.models.base import Usage


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What a session may use."""

    request_bytes: int = 64 << 20
    """In one request; with `previous_response_id`, the requests before it included."""
    reply_bytes: int = 64 << 20
    """In one reply."""
    calls: int | None = None
    tokens: int | None = None
    """Prompts and replies of all calls together. The call that exceeds it is still served."""
    calls_at_once: int = 32
    """An agent waits for its model, so more are a defect or an attack."""
    bodies_at_once: int = 4
    """Of requests that are being read: each may be as large as a request may be."""
    call_seconds: float = 600.0
    """For one call, with all its tries."""
    refusals: int | None = None
    """Requests in a row that may be refused, or be too long for the model, before the session fails."""
    ends_at_failure: bool = True
    """Whether the session answers no more once its engine has given up on a call; otherwise only that call has failed."""


@dataclass(frozen=True, slots=True)
class CallSummary:
    """One call in a session's trace."""

    id: str
    number: int
    dialect: str
    outcome: str
    began: float
    ended: float
    prompt_tokens: int
    completion_tokens: int
    tries: int
    failure_class: FailureClass | None
    sentence: str


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """What happened in a session."""

    session_id: str
    calls: int
    """Calls that were begun."""
    failed: int
    cut: int
    refused: int
    """Requests that the gateway itself refused, none of which reached the engine."""
    usage: Usage
    reward: float | None
    failure_class: FailureClass | None
    """The class that the attempt has, whatever its agent says; None while no failure has ended the session."""
    failure: str
    """Its sentence."""
    limit: str
    """Which of its limits the session reached, as a sentence; empty for none."""
    in_flight: int
    """Calls that have no reply yet."""
    unserved: str
    """Why the last request was refused, or was too long for the model; empty if a call has been served since."""
