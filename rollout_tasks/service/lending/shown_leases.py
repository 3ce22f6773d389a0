"""Leases, steps and ends as clients are told of them."""

from __future__ import annotations

import base64
from dataclasses import asdict

from rollout_tasks.environments.base import Observation
from rollout_tasks.service.lending import messages
from rollout_tasks.service.lending.lease_book import LentDesktop
from rollout_tasks.service.session_results import SessionEnd, Step
from rollout_tasks.unicode_text import storable


def shown_lease(lent: LentDesktop, ttl_seconds: float, place: int | None, waiting: int | None) -> messages.Lease:
    """Returns a lease as it stands.

    Args:
        lent: The lease.
        ttl_seconds: How long its client may be silent.
        place: Its place in the queue, from 1; None if it does not wait, or that is not known.
        waiting: How many wait; None as for `place`.
    """
    session, order = lent.session, lent.session.order
    end = session.end
    return messages.Lease(
        lease_id=lent.id,
        state=_state_of(lent),
        fence=session.fence,
        vm_id=session.vm_id,
        item_id=None if lent.bare else order.item.id,
        index=order.index,
        question=order.item.question,
        instructions=session.instructions,
        tools=[dict(tool) for tool in session.tools],
        turns=session.turn,
        max_turns=order.config.limits.max_turns,
        place=place,
        waiting=waiting,
        ttl_seconds=ttl_seconds,
        helped=session.helped,
        end=None if end is None else shown_end(end),
    )


def shown_end(end: SessionEnd) -> messages.End:
    """Returns how a session ended."""
    return messages.End(**{**asdict(end), "stages": dict(end.stages)}, reward=end.reward)


def shown_observation(observation: Observation, turn: int) -> messages.Observed:
    """Returns what a desktop showed after an act; turn 0 is before the first."""
    pictures = [base64.b64encode(image).decode() for image in observation.images]
    return messages.Observed(text=storable(observation.text), screenshots=pictures, turn=turn)


def shown_step(step: Step) -> tuple[bytes, float]:
    """Returns a step as JSON, and the seconds that the desktop took."""
    shown = messages.Step(
        status=step.status,
        response=storable(step.response),
        observation=None if step.observation is None else shown_observation(step.observation, step.turn),
        turn=step.turn,
        over=step.over,
        desktop_seconds=round(step.seconds, 6),
    )
    return shown.model_dump_json().encode(), step.seconds


def _state_of(lent: LentDesktop) -> str:
    session = lent.session
    if session.end is not None:
        return "ended"
    if session.fence is None:
        return "waiting"
    if not session.ready:
        return "setting_up"
    acts = session.over is None and not session.closed and lent.evaluation is None
    return "ready" if acts else "over"
