"""The class that Python programs use: which items it has, how it scores, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmark import Benchmark, RolloutResult
from benchmark.errors import BenchmarkError
from benchmark.judge import Judge, JudgeConfig

LINES = [
    '{"prompt": "One?", "answer": "so it is #### 1", "id": "a", "domain": "x"}',
    '{"prompt": "Two?", "answer": "so it is #### 2", "id": "b", "domain": "y"}',
    '{"prompt": "Three?", "answer": "so it is #### 3", "id": "ab", "domain": "x"}',
    "not an item",
]
FIELDS = {"question": "prompt"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(LINES))
    return path


def test_all_options_choose_the_items_and_are_remembered(data: Path) -> None:
    benchmark = Benchmark(
        data,
        description="Small sums.",
        answer_pattern="#### (.+)",
        skip_invalid=True,
        fields=FIELDS,
        ids=["a*"],
        domains=["x"],
        limit=1,
        shuffle_seed=4,
    )

    assert (benchmark.name, benchmark.description, benchmark.data_path) == ("sums", "Small sums.", data)
    (item,) = benchmark
    assert (len(benchmark), benchmark.get_items(), benchmark.items) == (1, [item], (item,))
    assert (item.id in {"a", "ab"}, item.answer in {"1", "3"}) == (True, True)
    (skipped,) = benchmark.skipped
    assert skipped.startswith(f"{data}, line 4: ")
    assert benchmark.selection == {
        "answer_pattern": "#### (.+)",
        "skip_invalid": True,
        "fields": ("question=prompt",),
        "split": None,
        "ids": ("a*",),
        "domains": ("x",),
        "limit": 1,
        "shuffle": True,
        "seed": 4,
    }


def test_without_options_it_has_every_item_in_order(data: Path) -> None:
    data.write_text("\n".join(LINES[:3]))
    benchmark = Benchmark(str(data), name="mine", fields=FIELDS)

    assert [item.id for item in benchmark] == ["a", "b", "ab"]
    assert (benchmark.name, benchmark.description, benchmark.skipped) == ("mine", "", ())
    plain = {"answer_pattern": None, "skip_invalid": False, "split": None, "ids": (), "domains": (), "limit": None}
    assert benchmark.selection == {**plain, "fields": ("question=prompt",), "shuffle": False, "seed": 0}
    assert Benchmark(data, fields=FIELDS, shuffle_seed=0).selection["shuffle"] is True


def test_answers_by_id_and_results_of_a_run_are_scored_alike(data: Path, tmp_path: Path) -> None:
    benchmark = Benchmark(data, fields=FIELDS, skip_invalid=True, answer_pattern="#### (.+)", description="Small sums.")
    by_id = benchmark.evaluate({"a": "1", "b": "3"})
    by_result = benchmark.evaluate([RolloutResult("a", answer="1"), RolloutResult("b", answer="3")])

    assert by_id.overview.summary == by_result.overview.summary
    assert by_id.overview.summary.average_score == pytest.approx(1 / 3)
    assert by_id.overview.summary.metric == "exact_match"
    assert benchmark.evaluate({"a": "it is 1"}, "final_number").overview.summary.metric == "final_number"
    twice = [RolloutResult("a", index, answer="1") for index in range(2)]
    assert benchmark.evaluate(twice, rollouts_per_item=2).overview.summary.total_rollouts == 6
    with pytest.raises(BenchmarkError, match=r"^rollout c#0 has a result, but no item has that id$"):
        benchmark.evaluate({"c": "1"})

    path = benchmark.save_report(by_id, str(tmp_path / "new" / "reports"))
    about = json.loads((path.parent / "evaluation.json").read_text())["benchmark_info"]
    assert path == tmp_path / "new" / "reports" / "report.md"
    assert about == {
        "name": "sums",
        "description": "Small sums.",
        "data_path": str(data),
        "total_items": 3,
        "scripted": False,
        "left_out": list(benchmark.skipped),
    }
    assert "Small sums." in path.read_text()


def test_its_judge_is_the_callers(data: Path) -> None:
    benchmark = Benchmark(data, fields=FIELDS, skip_invalid=True)
    with Judge(JudgeConfig("grader", "http://127.0.0.1:1/v1", tries=1), api_key="test") as judge:
        summary = benchmark.evaluate({"a": "1"}, "llm_judgement", judge=judge).overview.summary

    assert "judge grader: no reply from the endpoint" in str(summary.unscored)
