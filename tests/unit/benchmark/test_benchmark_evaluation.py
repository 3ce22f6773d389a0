"""Which rollouts count how, and what the summary makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchmark
from benchmark import RolloutResult, evaluate
from benchmark.errors import BenchmarkError, UnknownMetric
from benchmark.items import Item, load_items
from benchmark.metrics import Score

ITEMS = [Item(str(i), f"q{i}", f"a{i}") for i in range(4)]
LOST = {"status": "failed", "failure_class": "vm_lost", "counted_as": "infrastructure", "error": "VM 3 is gone"}
TURNS = {"status": "failed", "failure_class": "max_turns", "counted_as": "agent", "error": "50 turns"}


def result(item: int, index: int = 0, **fields: Any) -> RolloutResult:
    return RolloutResult(str(item), index, **fields)


def test_everything_completed() -> None:
    evaluation = evaluate(ITEMS, [result(i, answer=f"a{i}") for i in range(3)] + [result(3, answer="wrong")])

    summary = evaluation.summary
    assert [row.score for row in evaluation.rows] == [1.0, 1.0, 1.0, 0.0]
    assert (summary.total_items, summary.evaluated_items, summary.coverage) == (4, 4, 1.0)
    assert (summary.average_score, summary.valid_mean, summary.bounds) == (0.75, 0.75, (0.75, 0.75))
    assert (summary.max, summary.min, summary.perfect_matches) == (1.0, 0.0, 3)
    assert (summary.interval_method, summary.pass_at_k) == ("wilson", {1: 0.75})
    assert (summary.failures, summary.unscored, evaluation.groups) == ({}, {}, ())


@pytest.mark.parametrize(
    ("last", "standing", "score", "coverage", "average", "valid_mean", "bounds"),
    [
        ({"answer": "a3"}, "scored", 1.0, 1.0, 1.0, 1.0, (1.0, 1.0)),
        ({"answer": "a3", "score": 0.5}, "scored", 0.5, 1.0, 0.875, 0.875, (0.875, 0.875)),
        (TURNS, "agent_failure", 0.0, 1.0, 0.75, 0.75, (0.75, 0.75)),
        (TURNS | {"answer": "a3", "score": 1.0}, "agent_failure", 0.0, 1.0, 0.75, 0.75, (0.75, 0.75)),
        (LOST, "infrastructure_loss", 0.0, 1.0, 0.75, 1.0, (0.75, 1.0)),
        ({"status": "failed"}, "infrastructure_loss", 0.0, 1.0, 0.75, 1.0, (0.75, 1.0)),
        ({"status": "cancelled"}, "cancelled", 0.0, 0.75, 0.75, 1.0, (0.75, 1.0)),
        (None, "missing", 0.0, 0.75, 0.75, 1.0, (0.75, 1.0)),
    ],
)
def test_how_each_standing_counts(
    last: dict[str, Any] | None,
    standing: str,
    score: float,
    coverage: float,
    average: float,
    valid_mean: float,
    bounds: tuple[float, float],
) -> None:
    results = [result(i, answer=f"a{i}") for i in range(3)] + ([] if last is None else [result(3, **last)])

    evaluation = evaluate(ITEMS, results)

    row, summary = evaluation.rows[3], evaluation.summary
    assert (row.rollouts[0].standing, row.score) == (standing, score)
    assert (summary.coverage, summary.average_score) == (coverage, average)
    assert (summary.valid_mean, summary.bounds) == (valid_mean, bounds)


def test_failures_are_told_by_class_with_an_example() -> None:
    results = [result(0, **LOST), result(1, **TURNS), result(2, **LOST), result(3, status="cancelled")]

    failures = evaluate(ITEMS, results).summary.failures

    assert list(failures) == ["vm_lost", "cancelled", "max_turns"]
    assert (failures["vm_lost"].count, failures["vm_lost"].counted_as) == (2, "infrastructure")
    assert failures["vm_lost"].example == "0#0: VM 3 is gone"
    assert failures["max_turns"].counted_as == "agent"


def test_the_environments_own_score_wins() -> None:
    evaluation = evaluate(ITEMS[:1], [result(0, answer="a0", score=0.25)])

    row = evaluation.rows[0]
    assert (row.score, row.metric_name, row.prediction) == (0.25, "environment", "a0")


def test_several_rollouts_of_an_item() -> None:
    right = {0: {0, 1, 2}, 1: {1}, 2: set(), 3: {0}}
    results = [result(i, k, answer=f"a{i}" if k in right[i] else "no") for i in range(4) for k in range(3)]
    results[-1] = replace(results[-1], status="failed", failure_class="vm_lost", counted_as="infrastructure")

    summary = evaluate(ITEMS, results, rollouts_per_item=3).summary

    assert summary.total_rollouts == 12
    assert summary.average_score == summary.mean_at_n == pytest.approx(5 / 12)
    assert summary.valid_mean == pytest.approx((1 + 1 / 3 + 0 + 1 / 2) / 4)
    assert summary.max_at_n == 0.75
    assert summary.pass_at_k == pytest.approx({1: 5 / 12, 2: (1 + 2 / 3 + 0 + 2 / 3) / 4, 3: 0.75})
    assert summary.bounds == pytest.approx((5 / 12, 6 / 12))
    assert summary.perfect_matches == 1


def test_groups_by_domain() -> None:
    domains = ["os", "chrome", "os", None]
    items = [replace(item, metadata={"domain": domain}) for item, domain in zip(ITEMS, domains, strict=True)]

    groups = evaluate(items, [result(0, answer="a0"), result(2, **LOST), result(3, answer="a3")]).groups

    assert [(group.name, group.total_items) for group in groups] == [("chrome", 1), ("os", 2), (None, 1)]
    assert [(group.coverage, group.average_score, group.valid_mean) for group in groups] == [
        (0.0, 0.0, None),
        (1.0, 0.5, 1.0),
        (1.0, 1.0, 1.0),
    ]


def test_usage_adds_up() -> None:
    results = [result(i, seconds=1.5, prompt_tokens=10, completion_tokens=i) for i in range(4)]

    summary = evaluate(ITEMS, results).summary

    assert (summary.seconds, summary.prompt_tokens, summary.completion_tokens) == (6.0, 40, 6)


@pytest.mark.parametrize(
    ("items", "results", "options", "sentence"),
    [
        ([], [], {}, "there is no item to evaluate"),
        ([ITEMS[0], ITEMS[0]], [], {}, "item '0' is given twice"),
        (ITEMS, [result(0), result(0)], {}, "rollout 0#0 has two results"),
        (ITEMS, [RolloutResult("x")], {}, "rollout x#0 has a result, but no item has that id"),
        (ITEMS, [result(0, 1)], {}, "rollout 0#1 has a result, but there are 1 rollouts"),
        (ITEMS, [result(0, -1)], {}, "rollout 0#-1 has a result"),
        (ITEMS, [], {"rollouts_per_item": 0}, "rollouts per item must be at least 1, got 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    items: list[Item], results: list[RolloutResult], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BenchmarkError, match=sentence):
        evaluate(items, results, **options)


def test_an_unknown_metric_is_refused_before_anything_is_scored() -> None:
    with pytest.raises(UnknownMetric, match="exact_match"):
        evaluate(ITEMS, [], metric="best")


@pytest.mark.parametrize("fields", [{"score": 1.5}, {"score": float("nan")}, {"status": "done"}])
def test_a_result_out_of_bounds_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BenchmarkError, match="result of rollout 0#0"):
        result(0, **fields)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
        ("return 1.0", "the metric returned float instead of a Score"),
        ("return Score(2.0)", "ValueError: a score must be between 0 and 1, got 2.0"),
        ("return Score(1.0, {'x': float('nan')})", "ValueError: Out of range float values are not JSON compliant"),
        ("return Score(1.0, {'x': object()})", "TypeError: Object of type object is not JSON serializable"),
    ],
)
def test_a_metric_that_breaks_leaves_the_answer_without_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, error: str
) -> None:
    name = f"metric_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(
        f"from benchmark.metrics import Score\ndef score(prediction, answer, item):\n"
        f"    if item.id != '0': return Score(1.0)\n    {body}\n"
    )
    metadata = tmp_path / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[benchmark.metrics]\n{name} = {name}:score\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    evaluation = evaluate(ITEMS, [result(i) for i in range(4)], metric=name)

    row, summary = evaluation.rows[0], evaluation.summary
    assert (row.score, row.rollouts[0].standing) == (None, "unscored")
    assert summary.unscored["metric"].count == 1
    assert summary.unscored["metric"].example.startswith(f"0#0: {error}")
    assert (summary.coverage, summary.evaluated_items) == (0.75, 3)
    assert (summary.average_score, summary.valid_mean, summary.bounds) == (0.75, 1.0, (0.75, 1.0))


outcomes = st.sampled_from([None, LOST, TURNS, {"status": "cancelled"}, {"answer": "no"}]) | st.builds(
    lambda score: {"score": score}, st.floats(0, 1)
)


@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(outcomes, min_size=n, max_size=n), min_size=1, max_size=6))
)
def test_the_figures_hold_together_whatever_happened(table: list[list[dict[str, Any] | None]]) -> None:
    items = [Item(str(i), "q", "a") for i in range(len(table))]
    results = [result(i, k, **one) for i, row in enumerate(table) for k, one in enumerate(row) if one is not None]
    n = len(table[0])

    summary = evaluate(items, results, rollouts_per_item=n).summary

    assert sum(summary.standings.values()) == summary.total_rollouts == len(items) * n
    assert summary.min - 1e-12 <= summary.average_score <= summary.max + 1e-12
    assert summary.bounds[0] == summary.average_score <= summary.bounds[1] <= 1.0
    assert summary.mean_at_n <= summary.max_at_n + 1e-12
    assert summary.standings.get("missing", 0) == sum(one is None for row in table for one in row)
    values = list(summary.pass_at_k.values())
    assert values == sorted(values)
    assert (summary.valid_mean is None) == (summary.valid_items == 0)
    if summary.standings.keys() <= {"scored", "agent_failure"}:
        assert summary.valid_mean == pytest.approx(summary.average_score)
        assert summary.coverage == 1.0


def test_gsm8k_scores_exactly(shared_data: Path) -> None:
    items = load_items(shared_data / "gsm8k" / "test.jsonl", answer_pattern="#### (.+)")
    results = [
        RolloutResult(item.id, answer=str(item.metadata["worked_answer"]) if k >= 137 else "no idea")
        for k, item in enumerate(items)
    ]

    assert evaluate(items, results, metric="numeric_match").summary.average_score == 0.863
    assert evaluate(items, results[137:], metric="numeric_match").summary.average_score == 0.863
    assert evaluate(items, results, metric="contains_answer").summary.average_score > 0.8


def test_the_package_hands_out_evaluate() -> None:
    assert benchmark.evaluate is evaluate
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = benchmark.nothing
    assert Score(1.0).value == 1.0
