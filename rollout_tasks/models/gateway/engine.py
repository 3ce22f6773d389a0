"""The contract of an engine, which answers a session's chat requests; and an engine that is a function of the embedding program."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.parsing import NotAReplyError, json_object, parse_reply
from rollout_tasks.models.served import Served, VersionSpan
from rollout_tasks.models.served_call import CallFactsError, Sampled
from rollout_tasks.unicode_text import storable

_MOST_SPANS = 1000
_MOST_THREADS = 64
"""In which a function that is not a coroutine function answers at a time; further calls wait."""
CONTEXT_OVERFLOW = "context_length_exceeded"
"""The code of an `EngineError` about a prompt that is too long for the model."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One request to an engine."""

    session_id: str
    """Printable ASCII; keeps a session on one replica."""
    request: Mapping[str, Any]
    """A Chat Completions request, as `Engine.prepared` returned it."""
    reply_bytes: int
    """The most that a reply may have."""


Piece = dict[str, Any]
"""A `chat.completion.chunk` object as the engine sent it, unchecked but for being an object."""
OnPiece = Callable[[Piece], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EngineReply:
    """A reply, and what the engine says about how it was made."""

    reply: Reply
    """Its `usage` counts all tries."""
    sampled: Sampled = field(default_factory=Sampled)
    served: Served = field(default_factory=Served)
    logprobs: Mapping[str, Any] | None = None
    """The ``logprobs`` object of Chat Completions, for clients that asked for it."""
    stop: str = ""
    """The stop sequence that ended the reply, where the engine tells."""


class EngineError(Exception):
    """An engine gave up; the message is one sentence that is safe to show and to record."""

    def __init__(
        self, failure_class: FailureClass, sentence: str, *, status: int = 0, code: str = "", tries: int = 1
    ) -> None:
        """Stores what is known.

        Args:
            failure_class: ``model`` or ``model_overload``.
            sentence: What went wrong.
            status: The HTTP status that fits best; 0: 503 for an overload, else 502.
            code: The error's code in the API of OpenAI, as ``context_length_exceeded``.
            tries: The requests made.
        """
        super().__init__(sentence)
        self.failure_class = failure_class
        self.status = status or (503 if failure_class is FailureClass.MODEL_OVERLOAD else 502)
        self.code = code
        self.tries = tries


class Engine(Protocol):
    """Answers chat requests. All methods run in the event loop of the one gateway that it is given to."""

    model: str
    """The name of the model it serves."""

    def prepared(self, client_request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a client's Chat Completions request as this engine will send it: its own model, its fixed fields."""

    async def answer(self, call: EngineCall, on_piece: OnPiece | None) -> EngineReply:
        """Answers one request, with all its tries.

        Args:
            call: The request.
            on_piece: Awaited with every piece of the reply as it is sampled, by engines that can; None if nobody wants
                pieces. After the first one there is no other try.

        Raises:
            EngineError: It gave up.
        """

    async def close(self) -> None:
        """Ends connections; harmless when repeated."""


Answer = Callable[[EngineCall], EngineReply | Awaitable[EngineReply]]
"""How an embedding program answers, such as with a trainer's own sampler. `read_completion` makes the reply from a body."""


class FunctionEngine:
    """An `Engine` that calls a function: a coroutine function in the gateway's event loop, any other in a thread.

    A call that is cut off or takes too long ends a coroutine. A thread goes on to its end.
    """

    def __init__(self, model: str, answer: Answer) -> None:
        """Stores the function.

        Args:
            model: The name of the model it answers for.
            answer: A `RolloutFailure` that it raises keeps its class; any other error is the model's failure.
        """
        self.model = model
        self._answer = answer
        self._threads: ThreadPoolExecutor | None = None
        """Of its own: a function that hangs would keep the gateway's waiting."""

    def prepared(self, client_request: Mapping[str, Any]) -> dict[str, Any]:
        """See `Engine`."""
        return {**client_request, "model": self.model}

    async def answer(self, call: EngineCall, on_piece: OnPiece | None) -> EngineReply:
        """See `Engine`; the reply comes whole."""
        del on_piece
        answer: Any
        error: BaseException | None
        if inspect.iscoroutinefunction(self._answer):
            answer, error = await _outcome_of(self._answer(call))
        else:
            self._threads = self._threads or ThreadPoolExecutor(_MOST_THREADS, "engine")
            answer, error = await asyncio.get_running_loop().run_in_executor(
                self._threads, _outcome, self._answer, call
            )
            if inspect.isawaitable(answer):  # as of a lambda around a coroutine function
                answer, error = await _outcome_of(answer)
        if isinstance(error, RolloutFailure):
            raise EngineError(error.failure_class, str(error)) from error
        if isinstance(error, EngineError):
            raise error
        if error is not None:
            sentence = f"the engine of model {self.model} failed: {type(error).__name__}: {error}"
            raise EngineError(FailureClass.MODEL, sentence[:2000]) from error
        if not isinstance(answer, EngineReply):
            sentence = f"the engine of model {self.model} returned {type(answer).__name__}, not an EngineReply"
            raise EngineError(FailureClass.MODEL, sentence)
        return answer

    async def close(self) -> None:
        """See `Engine`."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)


def _outcome(answer: Answer, call: EngineCall) -> tuple[Any, BaseException | None]:
    """Returns what code that is not ours returned or raised, as values: no executor or event loop is to take it for its own.

    A StopIteration cannot be raised into a future, and a SystemExit ends an event loop.
    """
    try:
        return answer(call), None
    except BaseException as error:  # noqa: BLE001 (it is the session's failure, not the gateway's)
        return None, error


async def _outcome_of(answer: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """The same of a coroutine. Its cancellation is passed on if it comes from outside."""
    try:
        return await answer, None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return None, error
    except BaseException as error:  # noqa: BLE001 (as above)
        return None, error


def read_completion(body: str, usage: Usage, served: Served) -> EngineReply:
    """Reads a whole Chat Completions response: the reply, and the facts that some engines add to it.

    Token ids are read where vLLM writes them (``prompt_token_ids``, ``token_ids``), and spans of weight versions as
    ``weight_versions``: a list of version, start and end.

    Args:
        body: The response's JSON text.
        usage: Requests and seconds so far.
        served: Who answered; versions in the response take precedence.

    Raises:
        NotAReplyError: It is not a reply, or its facts cannot be true; the message completes "the endpoint answered".
    """
    reply = parse_reply(body, usage)
    response = json_object(body)
    choice = response["choices"][0]
    stop, logprobs = choice.get("stop_reason"), choice.get("logprobs")
    try:
        spans = _spans(response.get("weight_versions") or choice.get("weight_versions"))
        if spans:
            served = replace(served, version_at_start=spans[0].version, version_at_end=spans[-1].version, spans=spans)
        sampled = _sampled(reply.token_data)
        sampled.check(served)
    except CallFactsError as error:
        raise NotAReplyError(f"with {error}") from error
    return EngineReply(
        reply,
        sampled,
        served,
        logprobs if isinstance(logprobs, dict) else None,
        storable(stop[:1000]) if isinstance(stop, str) else "",
    )


def _sampled(data: Mapping[str, Any]) -> Sampled:
    logprobs = data.get("logprobs", ())
    wrong = next((place for place, one in enumerate(logprobs) if one is None), None)
    if wrong is not None:
        raise CallFactsError(f"a log-probability {wrong} that is not a finite number")
    return Sampled(
        prompt_ids=tuple(data.get("prompt_token_ids", ())),
        output_ids=tuple(data.get("token_ids", ())),
        output_texts=tuple(data.get("tokens", ())),
        logprobs=tuple(logprobs),
    )


def _spans(listed: Any) -> tuple[VersionSpan, ...]:
    if not isinstance(listed, list) or len(listed) > _MOST_SPANS:
        return ()
    spans = []
    for place, one in enumerate(listed):
        known = one if isinstance(one, dict) else {}
        version, start, end = known.get("version"), known.get("start"), known.get("end")
        if not isinstance(version, str | int) or type(start) is not int or type(end) is not int:
            raise CallFactsError(f"a version span {place} without version, start or end")
        spans.append(VersionSpan(storable(str(version)[:200]), start, end))
    return tuple(spans)
