"""Traces of an episode: longest sequences of one model's calls in which each prompt extends the one before with its output.

An agent that drops old screenshots sends prompts that do not extend the last one, so the tokens of one episode are several
rows for a trainer. Each sampled token is in exactly one trace; what stands between two outputs (a tool's answer, a picture)
and before the first is in it as context. Every trace of an episode gets the episode's advantage.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rollout_tasks.models.served import VersionSpan
from rollout_tasks.unicode_text import storable

_MOST_IDS = 1 << 31
"""Files hold token ids in 32 bits."""


class TraceError(ValueError):
    """What is recorded of a call cannot be true: one sentence that names it."""


class TokensUnknown(TraceError):
    """The engine did not tell which tokens it saw and sampled in a call: one sentence that names it."""


@dataclass(frozen=True, slots=True)
class SampledCall:
    """What a trainer needs of one model call: what the engine saw, and what it sampled."""

    number: int
    """In its episode, from 1."""
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    """The log-probability of each sampled token; empty where the engine did not tell."""
    pictures: tuple[str, ...] = ()
    """The SHA-256 of each picture in the prompt, in order."""
    spans: tuple[VersionSpan, ...] = ()
    """With which version of the weights which of its tokens were sampled; the version is empty where it is not known."""
    model: str = ""
    """The model that replied, by the name that its endpoint gave."""
    finish_reason: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """Where a trace has the tokens that one call sampled."""

    call: int
    """The call's number in its episode, from 1."""
    start: int
    end: int
    """The index after its last token."""
    finish_reason: str
    """Why the model stopped: ``stop``, ``tool_calls``, or ``length`` for one that was cut off."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The tokens of one sequence of calls of one model."""

    outputs: tuple[Output, ...]
    """Its calls, in order."""
    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    """For each token, whether the model sampled it here; all others are context."""
    logprobs: tuple[float, ...]
    """The log-probability of each token; 0.0 for context. Empty where the engine did not tell."""
    pictures: tuple[str, ...]
    """The SHA-256 of each picture in it, in order."""
    spans: tuple[VersionSpan, ...] = ()
    """With which version of the weights which of `ids` were sampled; a version is empty where it is not known."""
    model: str = ""

    @property
    def calls(self) -> tuple[int, ...]:
        """The numbers of its calls."""
        return tuple(output.call for output in self.outputs)


@dataclass(slots=True)
class _OpenTrace:
    """A trace that may still be extended."""

    model: str
    outputs: list[Output] = field(default_factory=list)
    ids: array[int] = field(default_factory=lambda: array("i"))
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    pictures: tuple[str, ...] = ()
    spans: list[VersionSpan] = field(default_factory=list)

    def is_extended_by(self, call: SampledCall, prompt: array[int]) -> bool:
        """Returns whether a call's prompt begins with all of this trace, pictures included.

        Pictures of one size have the same tokens, so equal tokens alone do not tell that the model saw the same.
        """
        return (
            self.model == call.model
            and bool(self.logprobs) == bool(call.logprobs)
            and call.pictures[: len(self.pictures)] == self.pictures
            and memoryview(prompt)[: len(self.ids)] == memoryview(self.ids)
        )

    def extend(self, call: SampledCall, prompt: array[int]) -> None:
        context = prompt[len(self.ids) :]
        self.ids += context + array("i", call.output_ids)
        self.sampled += [False] * len(context) + [True] * len(call.output_ids)
        if call.logprobs:
            self.logprobs += [*[0.0] * len(context), *call.logprobs]
        first = len(self.ids) - len(call.output_ids)
        self.spans += [VersionSpan(one.version, first + one.start, first + one.end) for one in call.spans]
        self.pictures = call.pictures
        self.outputs.append(Output(call.number, first, len(self.ids), call.finish_reason))

    def closed(self) -> Trace:
        return Trace(
            outputs=tuple(self.outputs),
            ids=tuple(self.ids),
            sampled=tuple(self.sampled),
            logprobs=tuple(self.logprobs),
            pictures=self.pictures,
            spans=tuple(self.spans),
            model=self.model,
        )


def traces_of(calls: Iterable[SampledCall]) -> list[Trace]:
    """Returns the traces of one episode, in the order in which they begin.

    A call extends the longest trace that its prompt begins with. Agents whose calls branch, as with several answers to one
    prompt, have a trace for each branch; what the branches share is sampled in the first and context in the others.

    Args:
        calls: In the order in which they were made.

    Raises:
        TokensUnknown: The engine did not tell the tokens of a call.
        TraceError: What is recorded of a call's tokens cannot be true.
    """
    traces: list[_OpenTrace] = []
    for call in calls:
        _check(call)
        prompt = array("i", call.prompt_ids)
        longest: _OpenTrace | None = None
        for trace in traces:
            if (longest is None or len(trace.ids) > len(longest.ids)) and trace.is_extended_by(call, prompt):
                longest = trace
        if longest is None:
            longest = _OpenTrace(call.model)
            traces.append(longest)
        longest.extend(call, prompt)
    return [trace.closed() for trace in traces]


def check_traces(traces: Sequence[Trace], calls: Sequence[SampledCall]) -> None:
    """Checks that each call is in exactly one trace, with the prompt, the pictures and the tokens that it had.

    Raises:
        TraceError: One is not; the message names the call.
    """
    known = {call.number: call for call in calls}
    numbers = sorted(number for trace in traces for number in trace.calls)
    if numbers != sorted(known):
        raise TraceError(f"the traces are of the calls {numbers}, and the episode has {sorted(known)}")
    for trace in traces:
        reached, spans = 0, list[VersionSpan]()
        for output in trace.outputs:
            call = known[output.call]
            first, end = len(call.prompt_ids), len(call.prompt_ids) + len(call.output_ids)
            spans += [VersionSpan(one.version, first + one.start, first + one.end) for one in call.spans]
            if (
                trace.model != call.model
                or output != Output(call.number, first, end, call.finish_reason)
                or trace.ids[:end] != call.prompt_ids + call.output_ids
                or trace.sampled[reached:end] != (False,) * (first - reached) + (True,) * (end - first)
                or trace.logprobs[reached:end] != ((0.0,) * (first - reached) + call.logprobs if call.logprobs else ())
                or trace.pictures[: len(call.pictures)] != call.pictures
            ):
                raise TraceError(f"the trace of call {call.number} is not what its model saw and sampled")
            reached = end
        if len(trace.ids) != reached or len(trace.sampled) != reached or trace.spans != tuple(spans):
            raise TraceError(f"the trace of call {trace.calls[-1]} has more than its calls")


def _check(call: SampledCall) -> None:
    if not call.prompt_ids or not call.output_ids:
        what = "output" if call.prompt_ids else "prompt"
        raise TokensUnknown(f"call {call.number} has no token ids of its {what}: its engine did not tell them")
    wrong = next(
        (one for one in call.prompt_ids + call.output_ids if type(one) is not int or not 0 <= one < _MOST_IDS), None
    )
    if wrong is not None:
        raise TraceError(f"call {call.number} has {str(wrong)[:50]!r} among its token ids")
    if call.logprobs and len(call.logprobs) != len(call.output_ids):
        raise TraceError(
            f"call {call.number} has {len(call.logprobs)} log-probabilities for {len(call.output_ids)} sampled tokens"
        )
    if not all(type(one) in {int, float} and math.isfinite(one) for one in call.logprobs):
        raise TraceError(f"call {call.number} has a log-probability that is no number")
    for text in (call.model, call.finish_reason, *(span.version for span in call.spans)):
        if not isinstance(text, str) or storable(text) != text:
            raise TraceError(f"call {call.number} has {ascii(text)[:50]} as a name, a version or a finish reason")
