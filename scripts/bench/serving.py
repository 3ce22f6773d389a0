"""Served replicas and the sessions that call them, simulated: prompt caches, queues, and a clock that is not real.

A replica works on the prompts one after the other, at `PREFILL_RATE` tokens a second, but for what it has of a prompt in
its cache. Answers are written side by side, each a little slower for every other one. Beyond `SLOTS` calls wait in line.
The cache holds the last prompt and answer of each session, until newer ones need the room. The figures are those of a model
of about eight billion parameters on one large GPU; each turn of a session adds a screenshot to its prompt.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

PREFILL_RATE = 8_000.0
"""Tokens of a prompt in a second."""
TOKEN_SECONDS = 0.015
"""For one token of an answer, if it is the only one that is written."""
TOKEN_SECONDS_PER_CALL = 0.0004
"""How much longer for each other call."""
SLOTS = 32
CACHE_TOKENS = 400_000
FIRST_PROMPT = 3_000
TURN_TOKENS = (1_000, 2_000)
ANSWER_TOKENS = (60, 240)
THINK_MEDIAN, THINK_SIGMA = 2.0, 0.8
"""Seconds between an answer and the next call, in which the action is carried out: lognormal."""


class Policy(Protocol):
    """Which replica gets a call."""

    def pick(self, session: int) -> int:
        """Returns the number of the replica that a session's call goes to."""

    def release(self, session: int) -> None:
        """Hears that the session's call is answered."""


@dataclass(frozen=True, slots=True)
class Load:
    """Who calls."""

    replicas: int = 3
    workers: int = 48
    """Sessions at a time."""
    sessions: int = 96
    turns: int = 20
    slowest: float = 1.0
    """The speed of the last replica; that of the others is 1."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a session."""

    new_tokens: int
    """What it adds to the prompt, beside the last answer."""
    answer_tokens: int
    think: float
    """Seconds until the next call."""


@dataclass(slots=True)
class Served:
    """What became of the calls."""

    seconds: list[float] = field(default_factory=list)
    """From each call to its answer."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    makespan: float = 0.0


def draw_sessions(load: Load, seed: int) -> list[list[Turn]]:
    """Returns the turns of each session; the same for every policy."""
    chance = random.Random(seed)
    return [
        [
            Turn(
                new_tokens=chance.randint(*TURN_TOKENS) + (FIRST_PROMPT if turn == 0 else 0),
                answer_tokens=chance.randint(*ANSWER_TOKENS),
                think=chance.lognormvariate(math.log(THINK_MEDIAN), THINK_SIGMA),
            )
            for turn in range(load.turns)
        ]
        for _ in range(load.sessions)
    ]


@dataclass(slots=True)
class _Call:
    session: int
    number: int
    """Of the turn."""
    turn: Turn
    prompt: int
    sent_at: float


class _Replica:
    """One server."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self.cache: OrderedDict[int, int] = OrderedDict()
        self.waiting: deque[_Call] = deque()
        self.running = 0
        self._prefill_free = 0.0

    def begin(self, call: _Call, now: float, served: Served) -> float:
        """Begins a call; returns when its answer will be there."""
        cached = min(self.cache.get(call.session, 0), call.prompt)
        served.prompt_tokens += call.prompt
        served.cached_tokens += cached
        self._prefill_free = max(now, self._prefill_free) + (call.prompt - cached) / PREFILL_RATE / self._speed
        token_seconds = TOKEN_SECONDS + TOKEN_SECONDS_PER_CALL * self.running
        self.running += 1
        return self._prefill_free + call.turn.answer_tokens * token_seconds / self._speed

    def end(self, call: _Call) -> None:
        self.running -= 1
        self.cache[call.session] = call.prompt + call.turn.answer_tokens
        self.cache.move_to_end(call.session)
        while sum(self.cache.values()) > CACHE_TOKENS:
            self.cache.popitem(last=False)


class _Course:
    """One simulation under way."""

    def __init__(self, policy: Policy, load: Load, seed: int) -> None:
        self.served = Served()
        self._policy = policy
        self._sessions = draw_sessions(load, seed)
        self._replicas = [_Replica(1.0) for _ in range(load.replicas - 1)] + [_Replica(load.slowest)]
        self._fresh = iter(range(load.sessions))
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = 0
        chance = random.Random(seed)
        for _ in range(load.workers):
            self._at(chance.uniform(0, 2 * THINK_MEDIAN), self._next_session)

    def go(self) -> None:
        while self._events:
            now, _number, happen = heapq.heappop(self._events)
            happen(now)
            self.served.makespan = now

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, happen))

    def _next_session(self, now: float) -> None:
        session = next(self._fresh, None)
        if session is not None:
            self._ask(now, session, 0, 0)

    def _ask(self, now: float, session: int, number: int, history: int) -> None:
        turn = self._sessions[session][number]
        call = _Call(session, number, turn, history + turn.new_tokens, now)
        replica = self._replicas[self._policy.pick(session)]
        if replica.running < SLOTS:
            self._begin(now, replica, call)
        else:
            replica.waiting.append(call)

    def _begin(self, now: float, replica: _Replica, call: _Call) -> None:
        ends = replica.begin(call, now, self.served)
        self._at(ends, lambda then: self._answered(then, replica, call))

    def _answered(self, now: float, replica: _Replica, call: _Call) -> None:
        replica.end(call)
        self._policy.release(call.session)
        self.served.seconds.append(now - call.sent_at)
        if replica.waiting:
            self._begin(now, replica, replica.waiting.popleft())
        history, next_number = call.prompt + call.turn.answer_tokens, call.number + 1
        then = now + call.turn.think
        if next_number < len(self._sessions[call.session]):
            self._at(then, lambda at: self._ask(at, call.session, next_number, history))
        else:
            self._at(then, self._next_session)


def serve(policy: Policy, load: Load, seed: int) -> Served:
    """Plays all sessions under a policy."""
    course = _Course(policy, load, seed)
    course.go()
    return course.served
