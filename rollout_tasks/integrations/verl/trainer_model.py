"""A trainer's engine as the model of one rollout: takes Chat Completions requests, and samples from token ids."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.integrations.verl.chat_messages import template_messages
from rollout_tasks.integrations.verl.prompts import PromptBuilder, Prompts
from rollout_tasks.models.gateway.engine import CONTEXT_OVERFLOW, EngineError
from rollout_tasks.trajectories.traces import Trace

MODEL_NAME = "policy"
_ABORTED = "aborted"
"""How verl's engine says that it stopped before a reply was complete, as for new weights."""


class TokenOutput(Protocol):
    """verl's `TokenOutput`."""

    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str | None
    num_preempted: int | None
    extra_fields: dict[str, Any]


class TokenEngine(Protocol):
    """verl's `LLMServerClient`."""

    async def generate(self, request_id: str, **asked: Any) -> TokenOutput:
        """Samples from token ids."""


class ToolCall(Protocol):
    """verl's `FunctionCall`."""

    name: str
    arguments: str


class ChatFormat(Protocol):
    """How the model's tokenizer writes and reads chats."""

    builder: PromptBuilder
    sees_pictures: bool
    end_ids: Collection[int]
    """The tokens that end a reply."""
    processor_options: Mapping[str, Any]
    """For pictures; the same in sampling and training."""

    async def pictures(self, messages: list[dict[str, Any]]) -> list[Any]:
        """Returns the pictures of a template's messages as the engine takes them, in order."""

    async def read(self, ids: list[int], tools: Sequence[Mapping[str, Any]]) -> tuple[str, Sequence[ToolCall]]:
        """Returns the text and the tool calls of a reply."""

    def stop_ids(self, tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Returns tokens at which sampling has to stop besides those that end a reply."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens."""

    context: int
    """Of a prompt and its reply together."""
    reply: int


@dataclass(frozen=True, slots=True)
class SampledOutput:
    """What the engine said about one reply besides its tokens."""

    seconds: float
    preempted: int | None
    first_step: int | None
    """The training step of the oldest weights that it was sampled with."""
    last_step: int | None


class TrainerModel:
    """One rollout's model. Its coroutines run in the engine's event loop."""

    def __init__(
        self, engine: TokenEngine, chat_format: ChatFormat, sampling: Mapping[str, Any], lengths: Lengths
    ) -> None:
        """Samples nothing yet.

        Args:
            engine: Samples.
            chat_format: Writes prompts and reads replies.
            sampling: The trainer's sampling parameters.
            lengths: What fits.
        """
        self._engine = engine
        self._format = chat_format
        self._sampling = dict(sampling)
        self._lengths = lengths
        self._prompts = Prompts(chat_format.builder)
        self._request_id = uuid.uuid4().hex
        """The same for all calls, which keeps them on one server."""
        self._outputs: dict[bytes, SampledOutput] = {}
        """By the digest of the prompt's and the reply's ids."""

    async def complete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a Chat Completions request, with token ids and log-probabilities in vLLM's form.

        Raises:
            EngineError: The prompt leaves no room for a reply.
            RolloutFailure: The engine has stopped in the middle of the reply, or cannot do what is asked.
        """
        messages, tools = request["messages"], request.get("tools") or []
        rendered = template_messages(messages, with_pictures=self._format.sees_pictures)
        pictures = await self._format.pictures(rendered) if any(map(_has_picture, rendered)) else []
        rendered = _with_pictures(rendered, pictures)
        prompt = await asyncio.to_thread(self._prompts.ids, messages, rendered, tools, pictures or None)
        most = self._most_tokens(request, len(prompt))
        began = time.monotonic()
        output = await self._engine.generate(
            request_id=self._request_id,
            prompt_ids=list(prompt),
            sampling_params=sampling_parameters(request, self._sampling, most, self._format.stop_ids(tools)),
            image_data=pictures or None,
            mm_processor_kwargs=dict(self._format.processor_options),
        )
        if output.stop_reason == _ABORTED or not output.token_ids:
            raise RolloutFailure(FailureClass.MODEL_OVERLOAD, "verl's engine stopped before the reply was complete")
        sampled = list(output.token_ids)
        self._outputs[_digest([*prompt, *sampled])] = _facts(output, time.monotonic() - began)
        reply, ending = await self._reply(sampled, tools, most)
        self._prompts.keep(messages, reply, tools, [*prompt, *sampled])
        choice = {"index": 0, "message": reply, "finish_reason": ending, "token_ids": sampled}
        if output.log_probs:
            choice["logprobs"] = {"content": [{"token": "", "logprob": float(one)} for one in output.log_probs]}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)}
        return {"model": MODEL_NAME, "prompt_token_ids": prompt, "choices": [choice], "usage": usage}

    def outputs_of(self, trace: Trace) -> list[SampledOutput]:
        """Returns what is known about each output of a trace.

        Raises:
            ValueError: This model has not seen or sampled what the trace has.
        """
        known = [self._outputs.get(_digest(trace.ids[: output.end])) for output in trace.outputs]
        if None in known:
            raise ValueError(
                f"the trace of call {trace.outputs[known.index(None)].call} is not what verl's engine sampled"
            )
        return [one for one in known if one is not None]

    def _most_tokens(self, request: Mapping[str, Any], prompt: int) -> int:
        room = self._lengths.context - prompt
        if room < 1:
            sentence = f"the prompt has {prompt} tokens, and verl's model has a context of {self._lengths.context}"
            raise EngineError(FailureClass.MODEL, sentence, status=400, code=CONTEXT_OVERFLOW)
        asked = [request.get("max_completion_tokens"), request.get("max_tokens"), self._sampling.get("max_tokens")]
        return min(room, self._lengths.reply, *[one for one in asked if type(one) is int and one > 0])

    async def _reply(self, ids: list[int], tools: Sequence[Mapping[str, Any]], most: int) -> tuple[dict[str, Any], str]:
        """Returns a reply as a message, and why it ended."""
        text, calls = await self._format.read(ids, tools)
        reply: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            reply["tool_calls"] = [
                {
                    "id": f"call_{uuid.uuid4().hex[:16]}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ]
        if len(ids) >= most and ids[-1] not in self._format.end_ids:
            return reply, "length"
        return reply, "tool_calls" if calls else "stop"


def sampling_parameters(
    request: Mapping[str, Any], sampling: Mapping[str, Any], most: int, stop_ids: Sequence[int]
) -> dict[str, Any]:
    """Returns the parameters of one call: the trainer's, whatever the agent asks for, so that it is trained as it was sampled.

    Args:
        request: The agent's request; only its most tokens count, which are in `most`.
        sampling: The trainer's parameters.
        most: The most tokens of the reply.
        stop_ids: Tokens at which to stop besides the trainer's.

    Raises:
        RolloutFailure: The agent asks to stop at a text; its class is ``model``.
    """
    if request.get("stop"):
        raise RolloutFailure(
            FailureClass.MODEL, "the agent asks to stop at a text, which verl's trainer does not sample with"
        )
    stops = sorted({*(sampling.get("stop_token_ids") or ()), *stop_ids})
    return {**sampling, "max_tokens": most, **({"stop_token_ids": stops} if stops else {})}


def _facts(output: TokenOutput, seconds: float) -> SampledOutput:
    first, last = (output.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps"))
    return SampledOutput(seconds, output.num_preempted, first, last)


def _digest(ids: Sequence[int]) -> bytes:
    return hashlib.sha256(array("i", ids).tobytes()).digest()


def _has_picture(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part["type"] == "image" for part in content)


def _with_pictures(messages: list[dict[str, Any]], pictures: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns messages with the pictures themselves in the place of their addresses."""
    left = iter(pictures)

    def shown(part: dict[str, Any]) -> dict[str, Any]:
        return {"type": "image", "image": next(left)} if part["type"] == "image" else part

    return [
        {**message, "content": [shown(part) for part in message["content"]]}
        if isinstance(message.get("content"), list)
        else message
        for message in messages
    ]
