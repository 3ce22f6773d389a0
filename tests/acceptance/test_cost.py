"""A run with prices says what it cost, and ends when it has cost as much as it may."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmark.report import read_report
from tests.acceptance.commands import MATH, rollouts

ASKED = (*MATH, "--run-id", "dear", "--num-rollouts", "1")
CHEAPER = ("--prompt-price", "1", "--completion-price", "2")
PRICES = ("--prompt-price", "1000", "--completion-price", "2000")


@pytest.mark.slow
def test_a_run_ends_when_it_has_cost_as_much_as_it_may_and_goes_on_with_more(tmp_path: Path) -> None:
    ran = rollouts(tmp_path, "run", *ASKED, *PRICES, "--max-cost", "2")

    assert ran.returncode == 1, ran.stderr
    report = read_report(tmp_path / "results" / "dear" / "evaluation.json")
    cancelled = report["summary"]["standings"]["cancelled"]
    assert 0 < cancelled < 25
    assert 2.0 <= report["summary"]["cost"] < 10.0
    assert (
        f"of at most $2.00, so {cancelled} of 25 rollouts were cancelled; roll them out with: rollouts resume"
        in ran.stderr
    )
    assert "| Cost of the tokens | $" in (tmp_path / "results" / "dear" / "report.md").read_text()
    of_one = json.loads(next((tmp_path / "results" / "dear").glob("*/0/result.json")).read_text())
    usage = of_one["usage"]
    assert of_one["cost"] == (usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 2000) / 1e6

    again = rollouts(tmp_path, "resume", "dear", "--embedded")
    assert (again.returncode, again.stderr.startswith("error: --max-cost: the run has cost $2.")) == (
        2,
        True,
    )

    resumed = rollouts(tmp_path, "resume", "dear", "--embedded", *CHEAPER, "--max-cost", "1000", "--json")
    assert resumed.returncode == 0, resumed.stderr
    end = json.loads(resumed.stdout)
    assert end["summary"]["standings"] == {"scored": 25}
    assert end["cost"] == pytest.approx(end["summary"]["cost"])
    assert end["cost"] > report["summary"]["cost"]
    config = json.loads((tmp_path / "results" / "dear" / "run.json").read_text())["config"]
    assert (config["model"]["prompt_price"], config["model"]["completion_price"], config["max_cost"]) == (1, 2, 1000)


@pytest.mark.slow
def test_a_limit_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    for options, sentence in [
        (("--max-cost", "2"), "error: --max-cost: what 'scripted' costs is not known: give --prompt-price and"),
        (("--prompt-price", "2"), "error: --prompt-price, --completion-price: only one of them is given"),
        (("--max-cost", "0"), "error: --max-cost: must be more than 0, got 0"),
        (("--prompt-price", "-1", "--completion-price", "1"), "error: --prompt-price: must be at least 0, got -1"),
    ]:
        done = rollouts(tmp_path, "run", *ASKED, *options, "--dry-run")
        assert (done.returncode, done.stderr[: len(sentence)]) == (2, sentence), done.stderr
    (tmp_path / "idle.jsonl").write_text('{"question": "Which?"}\n')
    idle = rollouts(
        tmp_path, "run", "--data-path", "idle.jsonl", "--env-mode", "simulated", "--max-cost", "1", "--dry-run"
    )
    assert (idle.returncode, idle.stderr.strip()) == (2, "error: --max-cost: this run asks no model")
