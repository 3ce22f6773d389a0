"""A function of your program as a run's model, such as a trainer's own sampler: served on this machine while a block lasts."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rollout_tasks.errors import FailureClass, RolloutFailure, UserError
from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.engine import EngineCall, EngineReply, FunctionEngine, read_completion
from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.models.gateway.session_summary import SessionLimits
from rollout_tasks.models.parsing import NotAReplyError
from rollout_tasks.models.served import Served
from rollout_tasks.models.served_call import ServedCall

Completion = Mapping[str, Any]
"""A Chat Completions response; ``prompt_token_ids`` and each choice's ``token_ids`` are taken where vLLM writes them."""
ModelFunction = Callable[[dict[str, Any]], Completion | Awaitable[Completion]]
"""Answers a Chat Completions request: a coroutine function, or one that may be called from several threads at a time."""

MOST_CALLS_AT_ONCE = 1_024
"""All the rollouts of a run ask one function."""
_MOST_BODIES_AT_ONCE = 64
_CALL_SECONDS = 24 * 3600.0
"""Whoever asks has a limit of its own, and goes away then."""
FUNCTION_LIMITS = SessionLimits(
    calls_at_once=MOST_CALLS_AT_ONCE,
    bodies_at_once=_MOST_BODIES_AT_ONCE,
    call_seconds=_CALL_SECONDS,
    ends_at_failure=False,
)
"""Of a session that a function answers."""


@dataclass(frozen=True, slots=True)
class FunctionEndpoint:
    """Where a function is served."""

    base_url: str
    """For a run's ``model.base_url``, and any client of OpenAI's API."""
    api_key: str
    """The only key: a run takes it from the environment, as ``OPENAI_API_KEY``."""


def function_engine(function: ModelFunction, model: str) -> FunctionEngine:
    """Returns the engine of a session that a function answers.

    Args:
        function: Answers the requests; see `serve_function`.
        model: The name of the model.
    """

    def read(completion: object, began: float) -> EngineReply:
        try:
            text = json.dumps(completion)
        except (TypeError, ValueError, RecursionError) as error:
            raise RolloutFailure(
                FailureClass.MODEL, f"the function of model {model} returned no JSON: {error}"
            ) from error
        try:
            return read_completion(text, Usage(requests=1, seconds=time.monotonic() - began), Served())
        except NotAReplyError as error:
            raise RolloutFailure(FailureClass.MODEL, f"the function of model {model} answered {error}") from error

    def call(engine_call: EngineCall) -> EngineReply | Awaitable[EngineReply]:
        began = time.monotonic()
        completion = function(dict(engine_call.request))
        return read_later(completion, began) if inspect.isawaitable(completion) else read(completion, began)

    async def read_later(completion: Awaitable[Completion], began: float) -> EngineReply:
        return read(await completion, began)

    async def call_coroutine(engine_call: EngineCall) -> EngineReply:
        began = time.monotonic()
        completion: Any = function(dict(engine_call.request))
        return read(await completion, began)

    is_coroutine = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    return FunctionEngine(model, call_coroutine if is_coroutine else call)


@contextmanager
def serve_function(function: ModelFunction, model: str = "policy", *, port: int = 0) -> Iterator[FunctionEndpoint]:
    """Serves a function as a model endpoint at loopback, in a thread of this process.

    A coroutine function runs in the event loop of that thread: what belongs to another loop does not work in it, and what
    blocks stops all calls. What the function raises fails that one call, by the failure class of a `RolloutFailure`, else as
    ``model``. Threads that are in the function when the block is left go on to their end.

    Args:
        function: Answers the requests.
        model: The name of the model.
        port: Where to listen; 0: at a free port. A run that is to be resumed later needs the same one.

    Raises:
        UserError: The port is taken, or there is no function.
    """
    if not callable(function):
        raise UserError(f"serve_function: needs a function, got {type(function).__name__}")
    engine = function_engine(function, model)
    with Gateway(port=port) as gateway, gateway.open("function", engine, NoRecord(), FUNCTION_LIMITS) as session:
        yield FunctionEndpoint(session.base_url, session.token)


class NoRecord:
    """Keeps nothing: the run that asks records its calls."""

    def record(self, call: ServedCall) -> None:
        """See `Recorder`."""
