"""Traces of an episode: longest runs of model calls in which each prompt extends the one before with its output.

An agent that drops old screenshots sends prompts that do not extend the last one, so the tokens of one episode are several
rows for a trainer. Each sampled token is in exactly one trace; what stands between two outputs (a tool's answer, a picture)
and before the first is in it as context. Every trace of an episode gets the episode's advantage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rollout_tasks.models.served import VersionSpan


class TraceError(ValueError):
    """A call cannot be a part of any trace: one sentence that names it."""


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
    """By which weights the output was sampled; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The tokens of one run of calls."""

    calls: tuple[int, ...]
    """The calls' numbers."""
    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    """For each token, whether the model sampled it here; all others are context."""
    logprobs: tuple[float, ...]
    """The log-probability of each token; 0.0 for context. Empty where the engine did not tell."""
    pictures: tuple[str, ...]
    """The SHA-256 of each picture in it, in order."""
    spans: tuple[VersionSpan, ...] = ()
    """By which weights its sampled tokens were sampled: indices into `ids`."""


@dataclass(slots=True)
class _Run:
    """A trace that may still be extended."""

    calls: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    pictures: tuple[str, ...] = ()
    spans: list[VersionSpan] = field(default_factory=list)

    def is_extended_by(self, call: SampledCall) -> bool:
        """Returns whether a call's prompt begins with all of this run, pictures included.

        Pictures of one size have the same tokens, so equal tokens alone do not tell that the model saw the same.
        """
        return (
            bool(self.logprobs) == bool(call.logprobs)
            and call.pictures[: len(self.pictures)] == self.pictures
            and list(call.prompt_ids[: len(self.ids)]) == self.ids
        )

    def extend(self, call: SampledCall) -> None:
        context = call.prompt_ids[len(self.ids) :]
        self.ids += [*context, *call.output_ids]
        self.sampled += [False] * len(context) + [True] * len(call.output_ids)
        if call.logprobs:
            self.logprobs += [*[0.0] * len(context), *call.logprobs]
        first = len(self.ids) - len(call.output_ids)
        self.spans += [VersionSpan(one.version, first + one.start, first + one.end) for one in call.spans]
        self.pictures = call.pictures
        self.calls.append(call.number)

    def trace(self) -> Trace:
        return Trace(
            calls=tuple(self.calls),
            ids=tuple(self.ids),
            sampled=tuple(self.sampled),
            logprobs=tuple(self.logprobs),
            pictures=self.pictures,
            spans=tuple(self.spans),
        )


def traces_of(calls: Iterable[SampledCall]) -> list[Trace]:
    """Returns the traces of one episode, in the order in which they begin.

    A call extends the longest run that its prompt begins with. Agents whose calls branch, as with several answers to one
    prompt, have a trace for each branch; what the branches share is sampled in the first and context in the others.

    Args:
        calls: In the order in which they were made.

    Raises:
        TraceError: A call has no tokens of its prompt or of its output, or not as many log-probabilities as tokens.
    """
    runs: list[_Run] = []
    for call in calls:
        _check(call)
        extended = max((run for run in runs if run.is_extended_by(call)), key=lambda run: len(run.ids), default=None)
        if extended is None:
            extended = _Run()
            runs.append(extended)
        extended.extend(call)
    return [run.trace() for run in runs]


def check_traces(traces: Sequence[Trace], calls: Sequence[SampledCall]) -> None:
    """Checks that every sampled token of every call is in exactly one trace, as it was sampled.

    Raises:
        TraceError: One is not; the message names the call.
    """
    known = {call.number: call for call in calls}
    numbers = sorted(number for trace in traces for number in trace.calls)
    if numbers != sorted(known):
        raise TraceError(f"the traces are of the calls {numbers}, and the episode has {sorted(known)}")
    for trace in traces:
        sampled = [one for one, own in zip(trace.ids, trace.sampled, strict=True) if own]
        for number in trace.calls:
            output = list(known[number].output_ids)
            if sampled[: len(output)] != output:
                raise TraceError(f"the trace has not the tokens that call {number} sampled")
            del sampled[: len(output)]
        if sampled:
            raise TraceError(f"the trace of call {trace.calls[0]} has {len(sampled)} tokens that no call sampled")


def _check(call: SampledCall) -> None:
    if not call.prompt_ids or not call.output_ids:
        what = "output" if call.prompt_ids else "prompt"
        raise TraceError(f"call {call.number} has no token ids of its {what}: its engine did not tell them")
    if call.logprobs and len(call.logprobs) != len(call.output_ids):
        raise TraceError(
            f"call {call.number} has {len(call.logprobs)} log-probabilities for {len(call.output_ids)} sampled tokens"
        )
