"""A session of the gateway: each call from admission to its record."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rollout_tasks.errors import FailureClass, RolloutFailure, boundary
from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.connection import ClientGone
from rollout_tasks.models.gateway.engine import CONTEXT_OVERFLOW, Engine, EngineCall, EngineError, EngineReply, OnPiece
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.refused import Refused
from rollout_tasks.models.gateway.session_summary import CallSummary, SessionLimits, SessionSummary
from rollout_tasks.models.served_call import CallFactsError, Recorder, ServedCall

_END_SECONDS = 5.0
"""How long a closed session waits for its calls to end; engines of other programs may not heed that they are cut off."""
_KEPT_CALLS = 10_000
"""In a session's trace, the newest."""
_KEPT_REFUSALS = 20


class Session:
    """One session. All methods but `summary` run in the gateway's event loop."""

    def __init__(
        self,
        session_id: str,
        engine: Engine,
        recorder: Recorder,
        limits: SessionLimits,
        when_over: Callable[[str], object] | None = None,
    ) -> None:
        self.id = session_id
        self.engine = engine
        self.limits = limits
        self.memory = SessionMemory()
        self.closed = False
        self.reward: float | None = None
        self.when_rewarded: Callable[[], object] | None = None
        """Called after each reward, in a thread of its own: it may wait for a disk."""
        self._rewarding = asyncio.Lock()
        self._recorder = recorder
        self._when_over = when_over
        """Told once why the session answers no more, when it has failed or reached a limit."""
        self._numbers = 0
        self._usage = Usage()
        self._failure: RolloutFailure | None = None
        self._calls: deque[CallSummary] = deque(maxlen=_KEPT_CALLS)
        self._outcomes = {"served": 0, "failed": 0, "cut": 0}
        self._refusals: deque[str] = deque(maxlen=_KEPT_REFUSALS)
        self._refused = 0
        self._unserved, self._why_unserved = 0, ""
        """How many requests were refused since the last call that was served, and why the last one was."""
        self._limit = ""
        self.bodies = 0
        """Requests whose bodies are being read."""
        self._in_flight: set[asyncio.Task[Any]] = set()

    async def call(
        self, dialect: str, client_request: Mapping[str, Any], on_piece: OnPiece | None
    ) -> tuple[str, EngineReply]:
        """Has the engine answer a request, and records what came of it.

        Args:
            dialect: The API that the client spoke.
            client_request: The request in Chat Completions' form.
            on_piece: See `Engine.answer`.

        Returns:
            The call's id, and the reply.

        Raises:
            Refused: A limit is reached, or the session failed before.
            EngineError: The engine gave up; the session has failed by that if it `ends_at_failure`.
        """
        self._admit()
        request = self.engine.prepared(client_request)
        self._numbers += 1
        call = ServedCall(
            id=secrets.token_hex(12),
            number=self._numbers,
            began=time.time(),
            ended=0.0,
            dialect=dialect,
            asked_model=str(client_request.get("model") or "")[:200],
            outcome="cut",
            messages=request["messages"],
            tools=request.get("tools") or (),
            sampling={name: value for name, value in request.items() if name not in {"messages", "tools"}},
        )
        started = time.monotonic()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a coroutine
        self._in_flight.add(task)
        try:
            answer = await self._answer(request, on_piece)
        except EngineError as error:
            failure = RolloutFailure(error.failure_class, str(error))
            over = error.code != CONTEXT_OVERFLOW and self.limits.ends_at_failure
            self._record_failure(call, started, failure, error.tries, over=over)
            if error.code == CONTEXT_OVERFLOW:  # agents shorten their prompt, and ask again
                self._not_served(str(error))
            raise
        except (asyncio.CancelledError, ClientGone) as cut:
            why = (
                "the session was closed" if self.closed else str(cut) or "the client went away before it had the reply"
            )
            self._record(replace(call, sentence=why, usage=Usage(seconds=time.monotonic() - started)), started)
            raise
        except Exception as error:  # a defect of an engine: recorded before it goes on
            defect = f"the engine failed: {type(error).__name__}: {error}"
            self._record_failure(call, started, RolloutFailure(FailureClass.INTERNAL, defect), 0)
            raise
        finally:
            self._in_flight.discard(task)
        served = replace(
            call,
            outcome="served",
            model=answer.reply.served_by,
            reply={**answer.reply.message, **answer.reply.thinking},
            finish_reason=answer.reply.finish_reason,
            usage=_counted(answer),
            sampled=answer.sampled,
            served=answer.served,
        )
        self._record(served, started)
        self._unserved, self._why_unserved = 0, ""
        if self._failure is not None and self._failure.failure_class is FailureClass.INTERNAL:
            raise EngineError(FailureClass.INTERNAL, str(self._failure), status=500)
        return call.id, answer

    def broken(self, sentence: str) -> None:
        """Marks the session as failed by a defect of this program."""
        self._fail(RolloutFailure(FailureClass.INTERNAL, sentence))

    def refuse(self, sentence: str) -> None:
        """Counts a request that was refused, for the trace."""
        self._refused += 1
        self._refusals.append(sentence[:500])
        self._not_served(sentence)

    async def set_reward(self, reward: object) -> None:
        """Stores the reward that the agent's side gives.

        Raises:
            Refused: It is not a finite number, or the session is closed.
        """
        if self.closed:
            raise Refused(409, f"session {self.id} is closed", "session_closed")
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(float(reward)):
            raise Refused(400, "reward must be a finite number")
        async with self._rewarding:  # one after the other: the last that is written counts
            before, self.reward = self.reward, float(reward)
            if self.when_rewarded is None:
                return
            try:
                await asyncio.to_thread(self.when_rewarded)
            except Refused:
                self.reward = before
                raise

    def trace(self) -> dict[str, Any]:
        """Returns what happened so far, as JSON values."""
        summary = self.summary()
        return {
            "session_id": self.id,
            "calls": [{name: getattr(call, name) for name in call.__slots__} for call in list(self._calls)],
            "refused": self._refused,
            "refusals": list(self._refusals),
            "prompt_tokens": summary.usage.prompt_tokens,
            "completion_tokens": summary.usage.completion_tokens,
            "failure_class": summary.failure_class,
            "failure": summary.failure,
            "reward": self.reward,
        }

    def summary(self) -> SessionSummary:
        """Returns the counts so far; may be called from any thread."""
        failure = self._failure
        return SessionSummary(
            session_id=self.id,
            calls=self._numbers,
            failed=self._outcomes["failed"],
            cut=self._outcomes["cut"],
            refused=self._refused,
            usage=self._usage,
            reward=self.reward,
            failure_class=failure.failure_class if failure else None,
            failure=str(failure) if failure else "",
            limit=self._limit,
            in_flight=len(self._in_flight),
            unserved=self._why_unserved,
        )

    async def close(self) -> None:
        """Ends the calls that are in flight; there are no others afterwards."""
        self.closed = True
        tasks = [task for task in self._in_flight if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS)
        self.memory = SessionMemory()

    def _admit(self) -> None:
        if self.closed:
            raise Refused(409, f"session {self.id} is closed")
        if self._failure is not None:
            raise Refused(
                503, f"session {self.id} has failed and answers no more calls: {self._failure}", "session_failed"
            )
        limits, used = self.limits, self._usage.total_tokens
        if limits.calls is not None and self._numbers >= limits.calls:
            self._limit = f"session {self.id} has used all its {limits.calls} calls"
        elif limits.tokens is not None and used >= limits.tokens:
            self._limit = f"session {self.id} has used {used} tokens, and may use {limits.tokens}"
        if self._limit:
            self._tell(self._limit)
            raise Refused(429, self._limit, "session_limit")
        if len(self._in_flight) >= limits.calls_at_once:
            raise Refused(429, f"session {self.id} has {limits.calls_at_once} calls in flight, the most at a time")

    async def _answer(self, request: dict[str, Any], on_piece: OnPiece | None) -> EngineReply:
        seconds = self.limits.call_seconds
        try:
            async with asyncio.timeout(seconds):
                call = EngineCall(self.id, request, self.limits.reply_bytes)
                answer = await self.engine.answer(call, on_piece)
            answer.sampled.check(answer.served)
            if _size(answer) > self.limits.reply_bytes:
                raise CallFactsError(f"more than {self.limits.reply_bytes:,} bytes")
        except TimeoutError:
            late = f"model {self.engine.model} gave no whole reply within {seconds:g} s"
            raise EngineError(FailureClass.MODEL_OVERLOAD, late, status=504) from None
        except CallFactsError as error:
            raise EngineError(FailureClass.MODEL, f"model {self.engine.model} answered with {error}") from error
        return answer

    def _fail(self, failure: RolloutFailure) -> None:
        """Keeps the first failure: what follows are its consequences."""
        self._failure = self._failure or failure
        self._tell(str(self._failure))

    def _not_served(self, sentence: str) -> None:
        self._unserved, self._why_unserved = self._unserved + 1, sentence[:500]
        if self.limits.refusals is not None and self._unserved >= self.limits.refusals:
            self._fail(
                RolloutFailure(FailureClass.MODEL, f"{self._unserved} requests in a row, the last: {sentence[:500]}")
            )

    def _tell(self, why: str) -> None:
        told, self._when_over = self._when_over, None
        if told is not None:
            told(why)

    def _record_failure(
        self, call: ServedCall, started: float, failure: RolloutFailure, tries: int, *, over: bool = True
    ) -> None:
        """Records a call that failed, then lets the session fail by it, if that is `over`."""
        if over:
            self._failure = self._failure or failure
        failed = replace(
            call,
            outcome="failed",
            failure_class=failure.failure_class,
            sentence=str(failure)[:2000],
            usage=Usage(requests=tries, seconds=time.monotonic() - started),
        )
        self._record(failed, started)
        if over:
            self._fail(failure)

    def _record(self, call: ServedCall, started: float) -> None:
        call = replace(call, ended=call.began + time.monotonic() - started)  # clocks may be changed meanwhile
        self._outcomes[call.outcome] += 1
        self._usage += call.usage
        self._calls.append(
            CallSummary(
                id=call.id,
                number=call.number,
                dialect=call.dialect,
                outcome=call.outcome,
                began=call.began,
                ended=call.ended,
                prompt_tokens=call.usage.prompt_tokens,
                completion_tokens=call.usage.completion_tokens,
                tries=call.usage.requests,
                failure_class=call.failure_class,
                sentence=call.sentence,
            )
        )
        try:
            with boundary(FailureClass.INTERNAL, "recording a model call"):
                self._recorder.record(call)
        except RolloutFailure as failure:
            self._fail(failure)


def _size(answer: EngineReply) -> int:
    """Returns about how many bytes a reply has."""
    reply, sampled = answer.reply, answer.sampled
    texts = (reply.text, *reply.thinking.values(), *(call.arguments for call in reply.tool_calls))
    return sum(map(len, texts)) + sum(map(len, (sampled.prompt_ids, sampled.output_ids, sampled.logprobs)))


def _counted(answer: EngineReply) -> Usage:
    """Returns a reply's usage; tokens that the engine did not count are counted by their ids."""
    usage, sampled = answer.reply.usage, answer.sampled
    if usage.total_tokens:
        return usage
    return replace(usage, prompt_tokens=len(sampled.prompt_ids), completion_tokens=len(sampled.output_ids))
