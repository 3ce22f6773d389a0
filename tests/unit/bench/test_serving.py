"""The simulated replicas of the balancing bench: what a call takes, what is cached, and that every call is answered."""

from __future__ import annotations

import pytest

from scripts.bench import serving
from scripts.bench.balancing import ConsistentHashing, LeastLoaded, RoundRobin
from scripts.bench.serving import (
    PREFILL_RATE,
    TOKEN_SECONDS,
    TOKEN_SECONDS_PER_CALL,
    Load,
    Policy,
    Turn,
    draw_sessions,
    serve,
)


class Recorded:
    """A policy, and where it sent each session's calls."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.sent: dict[int, list[int]] = {}
        self.released = 0

    def pick(self, session: int) -> int:
        self.sent.setdefault(session, []).append(self.policy.pick(session))
        return self.sent[session][-1]

    def release(self, session: int) -> None:
        self.released += 1
        self.policy.release(session)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn adds 800 tokens to the prompt and 100 of an answer."""
    drawn = [[Turn(800, 100, 1.0)] * 3] * 4
    monkeypatch.setattr(serving, "draw_sessions", lambda load, _seed: [turns[: load.turns] for turns in drawn])


@pytest.mark.usefixtures("turns")
@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_a_session_alone_pays_for_what_is_new_in_its_prompt(speed: float) -> None:
    served = serve(RoundRobin(1), Load(1, 1, 1, 3, slowest=speed), 0)

    each = (800 / PREFILL_RATE + 100 * TOKEN_SECONDS) / speed
    assert served.seconds == pytest.approx([each] * 3)
    assert served.prompt_tokens == 800 + 1700 + 2600
    assert served.cached_tokens == 0 + 900 + 1800


@pytest.mark.usefixtures("turns")
def test_a_session_that_moves_pays_for_all_of_its_prompt() -> None:
    served = serve(RoundRobin(2), Load(2, 1, 1, 3), 0)

    whole = [tokens / PREFILL_RATE + 100 * TOKEN_SECONDS for tokens in (800, 1700, 2600 - 900)]
    assert served.seconds == pytest.approx(whole), "the third call is back where the first was"


@pytest.mark.usefixtures("turns")
def test_beyond_its_slots_a_replica_lets_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SLOTS", 1)
    monkeypatch.setattr(serving, "THINK_MEDIAN", 0.0)
    served = serve(RoundRobin(1), Load(1, 3, 3, 1), 0)

    each = 800 / PREFILL_RATE + 100 * TOKEN_SECONDS
    assert served.seconds == pytest.approx([each, 2 * each, 3 * each])


@pytest.mark.usefixtures("turns")
def test_prompts_are_worked_on_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "THINK_MEDIAN", 0.0)
    served = serve(RoundRobin(1), Load(1, 2, 2, 1), 0)

    second = 2 * 800 / PREFILL_RATE + 100 * (TOKEN_SECONDS + TOKEN_SECONDS_PER_CALL)
    assert served.seconds == pytest.approx([800 / PREFILL_RATE + 100 * TOKEN_SECONDS, second])


@pytest.mark.usefixtures("turns")
@pytest.mark.parametrize(("room", "found", "new"), [(1800, 1800, 800), (1799, 900, 1700), (899, 0, 1700)])
def test_the_cache_lets_go_of_the_session_that_asked_longest_ago(
    monkeypatch: pytest.MonkeyPatch, room: int, found: int, new: int
) -> None:
    monkeypatch.setattr(serving, "CACHE_TOKENS", room)
    monkeypatch.setattr(serving, "THINK_MEDIAN", 0.0)

    served = serve(RoundRobin(1), Load(1, 2, 2, 2), 0)

    assert served.cached_tokens == found, "both begin at once, and the second to end pushes the first one out"
    assert served.seconds[2] == pytest.approx(new / PREFILL_RATE + 100 * TOKEN_SECONDS), "the first one's next call"


@pytest.mark.parametrize(
    "policy", [RoundRobin(3), LeastLoaded(3), ConsistentHashing(3)], ids=lambda one: type(one).__name__
)
def test_every_call_of_every_session_is_answered(policy: Policy) -> None:
    load = Load(replicas=3, workers=5, sessions=12, turns=4)
    recorded = Recorded(policy)

    served = serve(recorded, load, 7)

    assert len(served.seconds) == recorded.released == 12 * 4
    assert sorted(recorded.sent) == list(range(12))
    if isinstance(policy, ConsistentHashing):
        assert all(len(set(sent)) == 1 for sent in recorded.sent.values())
        assert len({sent[0] for sent in recorded.sent.values()}) > 1


def test_one_seed_draws_the_same_sessions() -> None:
    load = Load(sessions=3)

    assert draw_sessions(load, 1) == draw_sessions(load, 1) != draw_sessions(load, 2)
