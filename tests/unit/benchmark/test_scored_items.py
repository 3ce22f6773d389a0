"""Scores of a stored report: which count, and what is refused of one that comes from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.errors import BenchmarkError
from benchmark.scored_items import scored_report


def rollout(index: int = 0, standing: str = "scored", score: Any = 1.0) -> dict[str, Any]:
    return {"index": index, "standing": standing, "score": score, "metric_name": "m"}


def row(*rollouts: Any, **changed: Any) -> dict[str, Any]:
    return {
        "item_id": "a",
        "domain": None,
        "question": "?",
        "ground_truth": "x",
        "rollouts": list(rollouts) or [rollout()],
        **changed,
    }


def written(path: Path, *rows: Any) -> Path:
    report = {"benchmark_info": {}, "evaluation_results": list(rows), "summary": {"metric": "m"}}
    path.write_text(json.dumps(report), encoding="utf-8")
    return path


def test_only_valid_rollouts_have_a_score(tmp_path: Path) -> None:
    rollouts = [
        rollout(0),
        rollout(1, "agent_failure", 0.0),
        rollout(2, "infrastructure_loss", 0.0),
        rollout(3, "cancelled", 0.0),
        rollout(4, "missing", 0.0),
        rollout(5, "unscored", None),
    ]

    found = scored_report(written(tmp_path / "r.json", row(*rollouts), row(item_id="b", question="??")))

    a, b = found.items["a"], found.items["b"]
    assert (a.valid, a.asked, a.mean, a.best) == ({0: 1.0, 1: 0.0}, 6, 0.5, 1.0)
    assert (found.metric, found.scripted) == ("m", False)
    assert a.content != b.content
    assert list(found.items) == ["a", "b"]


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        "a",
        {},
        row(item_id=1),
        row(domain=1),
        row(question=None),
        row(rollouts=[]),
        row(rollouts=None),
        row(rollouts=[None]),
        row(rollout(score=2.0)),
        row(rollout(score=-0.1)),
        row(rollout(score="1")),
        row(rollout(score=True)),
        row(rollout(score=float("nan"))),
        row(rollout(score=10**400)),
        row(rollout(standing="good")),
        row(rollout(standing=[])),
        row(rollout(index=-1)),
        row(rollout(index=True)),
        row(rollout(index=10**9)),
        row(rollout(), rollout()),
    ],
    ids=repr,
)
def test_a_row_of_another_kind_is_refused(tmp_path: Path, broken: Any) -> None:
    path = written(tmp_path / "r.json", row(item_id="first"), broken)

    with pytest.raises(BenchmarkError, match=r"r\.json: is not a JSON report: row 2 ") as caught:
        scored_report(path)

    assert "\n" not in str(caught.value)


def test_two_rows_of_one_item_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="item 'a' has two rows"):
        scored_report(written(tmp_path / "r.json", row(), row()))
