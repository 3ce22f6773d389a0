"""Traces of calls: each sampled token in exactly one, with the tokens and the pictures that the model saw before it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_tasks.models.served import VersionSpan
from rollout_tasks.trajectories.traces import Output, SampledCall, TraceError, check_traces, traces_of

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def call(number: int, prompt: str, output: str, pictures: tuple[str, ...] = (), version: str = "") -> SampledCall:
    """A call whose tokens are characters."""
    spans = (VersionSpan(version, 0, len(output)),) if version else ()
    ids, made = tuple(map(ord, prompt)), tuple(map(ord, output))
    return SampledCall(number, ids, made, tuple(-float(one) for one in made), pictures, spans)


def shown(trace) -> str:
    """A trace as text, with what was sampled in capitals."""
    return "".join(chr(one).upper() if own else chr(one) for one, own in zip(trace.ids, trace.sampled, strict=True))


def test_prompts_that_extend_each_other_are_one_trace() -> None:
    (trace,) = traces_of(
        [call(1, "ask", "do", (A,)), call(2, "askdosee", "it", (A, B)), call(3, "askdoseeitend", "x", (A, B))]
    )

    assert shown(trace) == "askDOseeITendX"
    assert (trace.calls, trace.pictures) == ((1, 2, 3), (A, B))
    assert [one for one in trace.logprobs if one] == [-float(ord(one)) for one in "doitx"]


def test_a_prompt_that_lacks_something_begins_another() -> None:
    first, second = traces_of([call(1, "ask1", "do"), call(2, "ask2", "it"), call(3, "ask2it3", "end")])

    assert (shown(first), shown(second)) == ("ask1DO", "ask2IT3END")


def test_another_picture_of_the_same_size_begins_another() -> None:
    """Its tokens are the same: only the picture tells."""
    traces = traces_of(
        [call(1, "see", "do", (A,)), call(2, "seedosee", "it", (B, C)), call(3, "seedosee", "it", (A, C))]
    )

    assert [(trace.calls, trace.pictures) for trace in traces] == [((1, 3), (A, C)), ((2,), (B, C))]


def test_calls_of_another_model_are_another_trace() -> None:
    """As where a critic is shown what the policy said."""
    policy, critic = replace(call(1, "ask", "do"), model="policy"), replace(call(2, "askdosee", "it"), model="critic")

    assert [(trace.model, trace.calls) for trace in traces_of([policy, critic])] == [("policy", (1,)), ("critic", (2,))]


def test_where_each_output_is_and_how_it_ended() -> None:
    cut_off = replace(call(2, "askdosee", "it"), finish_reason="length")

    (trace,) = traces_of([call(1, "ask", "do"), cut_off])

    assert trace.outputs == (Output(1, 3, 5, ""), Output(2, 8, 10, "length"))


def test_branches_share_what_was_sampled_once() -> None:
    first, second = traces_of([call(1, "ask", "do"), call(2, "askdo1", "it"), call(3, "askdo2", "at")])

    assert (shown(first), shown(second)) == ("askDO1IT", "askdo2AT")


def test_a_call_extends_the_longest_run_that_it_can() -> None:
    traces = traces_of([call(1, "a", "b"), call(2, "abc", "d"), call(3, "a", "c"), call(4, "abcde", "f")])

    assert [trace.calls for trace in traces] == [(1, 2, 4), (3,)]


def test_versions_of_weights_stand_where_they_were_sampled() -> None:
    (trace,) = traces_of([call(1, "ask", "do", version="7"), call(2, "askdosee", "it", version="8")])

    assert trace.spans == (VersionSpan("7", 3, 5), VersionSpan("8", 8, 10))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"prompt_ids": ()}, "call 2 has no token ids of its prompt"),
        ({"output_ids": ()}, "call 2 has no token ids of its output"),
        ({"logprobs": (0.0,)}, "call 2 has 1 log-probabilities for 2 sampled tokens"),
        ({"logprobs": (0.0, None)}, "call 2 has a log-probability that is no number"),
        ({"logprobs": (0.0, math.nan)}, "call 2 has a log-probability that is no number"),
        ({"logprobs": (0.0, True)}, "call 2 has a log-probability that is no number"),
        ({"model": 5}, "call 2 has 5 as a name"),
        ({"finish_reason": "\ud800"}, "call 2 has .* as a name, a version or a finish reason"),
        ({"output_ids": (1, "2")}, "call 2 has '2' among its token ids"),
        ({"prompt_ids": (1 << 31,)}, "call 2 has '2147483648' among its token ids"),
    ],
)
def test_a_call_without_its_tokens_is_named(broken: dict[str, object], said: str) -> None:
    with pytest.raises(TraceError, match=said):
        traces_of([call(1, "ask", "do"), replace(call(2, "askdo!", "it"), **broken)])


EPISODES = st.lists(
    st.tuples(
        st.integers(0, 3), st.text("abc", min_size=1, max_size=3), st.text("xyz", min_size=1, max_size=3), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


@given(EPISODES)
def test_each_sampled_token_is_in_exactly_one_trace(turns: list[tuple[int, str, str, bool]]) -> None:
    """Whatever an agent drops of its conversation, and wherever it goes back to."""
    said, calls = ["s"], []
    for number, (dropped, asked, output, at_the_end) in enumerate(turns, 1):
        said = said[: max(1, len(said) - dropped)] if at_the_end else [said[0], *said[1 + dropped :]]
        said.append(asked)
        calls.append(call(number, "".join(said), output))
        said.append(output)

    traces = traces_of(calls)

    check_traces(traces, calls)
    assert sum(sum(trace.sampled) for trace in traces) == sum(len(one.output_ids) for one in calls)
    for trace in traces:
        assert len(trace.ids) == len(trace.sampled) == len(trace.logprobs)
        assert all((one == 0) != own for one, own in zip(trace.logprobs, trace.sampled, strict=True))


CALLS = [call(1, "ask", "do", (A,), "7"), call(2, "askdosee", "it", (A, B), "8")]
EXPECTED = (False,) * 3 + (True,) * 2 + (False,) * 3 + (True,) * 2
BROKEN: dict[str, tuple[dict[str, object], str]] = {
    "another token sampled": ({"ids": tuple(map(ord, "askdoseei!"))}, "call 2"),
    "another token of the prompt": ({"ids": tuple(map(ord, "ask!oseeit"))}, "call 1"),
    "context taken for sampled": ({"sampled": (False,) * 3 + (True,) * 7}, "call 2"),
    "sampled taken for context": ({"sampled": (False,) * 8 + (True,) * 2}, "call 1"),
    "one token more": (
        {"ids": tuple(map(ord, "askdoseeit!")), "sampled": (*EXPECTED, True)},
        "call 2",
    ),
    "another log-probability": ({"logprobs": (0.0,) * 10}, "call 1"),
    "a picture lost": ({"pictures": (A,)}, "call 2"),
    "pictures the other way round": ({"pictures": (B, A)}, "call 1"),
    "a version lost": ({"spans": ()}, "call 2"),
    "a call lost": ({"outputs": (Output(1, 3, 5, ""),)}, "of the calls"),
    "another end of an output": ({"outputs": (Output(1, 3, 6, ""), Output(2, 8, 10, ""))}, "call 1"),
    "another model": ({"model": "critic"}, "call 1"),
}


@pytest.mark.parametrize(("broken", "said"), BROKEN.values(), ids=list(BROKEN))
def test_a_trace_that_is_not_what_was_sampled_is_found(broken: dict[str, object], said: str) -> None:
    (trace,) = traces_of(CALLS)
    check_traces([trace], CALLS)

    with pytest.raises(TraceError, match=said):
        check_traces([replace(trace, **broken)], CALLS)
