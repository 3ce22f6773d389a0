"""`rollouts compare`, `stats` and `latency`: what they say of real folders, and what they refuse."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from benchmark.errors import BenchmarkError
from rollout_tasks.cli import compare, latency, stats
from rollout_tasks.errors import UserError
from rollout_tasks.runs.finalize import score_run
from tests.unit.cli.recorded_runs import LOST, Took, recorded

APPLICATIONS = {"compare": compare.application, "stats": stats.application, "latency": latency.application}
DOMAINS = {"a": "chrome", "b": "libreoffice_calc", "c": "libreoffice_writer", "d": "os"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two(here: Path) -> None:
    first = {"a": [0.0, 0.0], "b": [1.0, LOST], "c": [LOST, LOST], "d": [0.0, 1.0]}
    second = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [1.0, 1.0], "d": [1.0, 1.0]}
    recorded(here / "results" / "one", first, domains=DOMAINS)
    recorded(here / "results" / "two", second, domains=DOMAINS, took=Took(("open", "type", "save"), cost=0.5))


def command(name: str, *arguments: str) -> Result:
    done = CliRunner().invoke(APPLICATIONS[name], list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def told(name: str, *arguments: str) -> Any:
    return json.loads(command(name, *arguments, "--json").stdout)


@pytest.mark.usefixtures("two")
def test_two_runs_are_compared() -> None:
    found = told("compare", "one", "two", "--difference", "0.1")

    assert (found["metric"], found["items"], found["level"], found["power"]) == ("environment", 4, 0.05, 0.8)
    [pair] = found["comparisons"]
    assert (pair["first"], pair["second"], pair["items"], pair["left_out"]) == ("one", "two", 3, 1)
    assert pair["difference"] == pytest.approx((0.5 + 0.0 + 0.5) / 3)
    assert pair["interval"]["method"] == "bootstrap"
    assert pair["mcnemar"] == {"both": 1, "first_only": 0, "second_only": 2, "neither": 0, "p_value": 0.5}
    assert pair["needed"]["difference"] == 0.1
    assert [one["item_id"] for one in pair["differing"]] == ["a", "d"]
    part = pair["differing"][0]["divergence"]
    assert (part["step"], part["first"], part["second"]) == (2, 'press({"key": "save"})', 'press({"key": "type"})')
    assert (part["steps"], part["seen_after"]) == ([2, 3], None)


@pytest.mark.usefixtures("two")
def test_the_comparison_is_said_in_sentences_and_a_table() -> None:
    said = command("compare", "one", "two").stdout

    assert "Items: 3 (1 without a valid rollout in both are left out); 2 better, 0 worse, 1 the same" in said
    assert re.search(r"Mean: 0\.5000 -> 0\.8333, difference \+0\.3333 \(95% interval [+-]0\.\d+ to \+0\.\d+\)", said)
    assert "McNemar's exact test" in said
    assert re.search(r"A difference of 0\.05 needs [\d,]+ items \(power 80%, level 5%", said)
    assert [line.split()[1] for line in said.splitlines() if "press" in line] == ["a", "d"]
    assert "adjusted" not in said


@pytest.mark.usefixtures("two")
def test_several_runs_are_compared_with_the_first(here: Path) -> None:
    recorded(here / "results" / "three", {name: [0.0, 0.0] for name in DOMAINS}, domains=DOMAINS)

    found = told("compare", "one", "two", "three")

    assert [pair["second"] for pair in found["comparisons"]] == ["two", "three"]
    for pair in found["comparisons"]:
        assert pair["adjusted_p_value"] >= pair["p_value"]
    assert "adjusted for 2 comparisons" in command("compare", "one", "two", "three").stdout


@pytest.mark.usefixtures("two")
def test_one_rollout_is_shown_where_it_parts() -> None:
    said = command("compare", "one", "two", "--rollout", "b#0").stdout

    assert said.splitlines() == [
        "Rollout b#0: one has 2 steps, two has 3",
        "  They saw the same before they parted.",
        '  Step 2, one: press({"key": "save"})',
        '  Step 2, two: press({"key": "type"})',
    ]
    assert told("compare", "one", "two", "--rollout", "b#0")["others"]["two"]["step"] == 2


def test_rollouts_of_the_same_steps_are_told_apart_by_their_endings(here: Path) -> None:
    recorded(here / "results" / "one", {"a": [LOST]})
    recorded(here / "results" / "two", {"a": [1.0]})
    recorded(here / "results" / "three", {"a": [1.0]}, took=Took(("open",)))

    assert command("compare", "one", "two", "three", "--rollout", "a#0").stdout.splitlines() == [
        "Rollout a#0: one has 2 steps, two has 2",
        "  They saw the same.",
        "  They have the same steps.",
        "  one ended: vm_lost",
        "  two ended: completed",
        "Rollout a#0: one has 2 steps, three has 1",
        "  They saw the same before they parted.",
        '  Step 2, one: press({"key": "save"})',
        "  Step 2, three: (ended: completed)",
    ]


@pytest.mark.usefixtures("two")
def test_a_record_that_is_not_there_is_said_for_its_item_alone(here: Path) -> None:
    (here / "results/one/a/0/attempt-1/trajectory.jsonl").unlink()

    rows = told("compare", "one", "two")["comparisons"][0]["differing"]

    assert [bool(row["divergence"]) for row in rows] == [False, True]
    assert rows[0]["problem"].startswith("rollout a#0 has no record in both runs: ")
    with pytest.raises(UserError, match="a#0 has no record in both runs"):
        command("compare", "one", "two", "--rollout", "a#0")


@pytest.mark.usefixtures("two")
def test_other_items_are_refused_or_left_out_and_said(here: Path) -> None:
    recorded(here / "results" / "other", {"a": [0.0, 1.0], "b": [0.0, 0.0], "x": [1.0, 1.0]}, questions={"b": "why?"})

    with pytest.raises(UserError, match=r"^item 'b' has another question or answer in run other than in run one; "):
        command("compare", "one", "other")
    found = command("compare", "one", "other", "--common-items")
    assert "Items: 1; " in found.stdout
    assert found.stderr.splitlines() == [
        "left out: 3 items of one, which not all runs have",
        "left out: 2 items of other, which not all runs have",
    ]
    assert [one["items_not_in_all"] for one in told("stats", "one", "other", "--common-items")["runs"]] == [3, 2]


def test_items_that_one_run_lacks_are_named(here: Path) -> None:
    recorded(here / "results" / "one", {"a": [0.0], "b": [1.0]})
    recorded(here / "results" / "two", {"a": [0.0], "x": [1.0], "y": [1.0]})

    for name in ("compare", "stats"):
        with pytest.raises(UserError) as caught:
            command(name, "one", "two")
        assert str(caught.value) == (
            "runs one and two have different items: 1 item only in one, such as 'b'; 2 items only in two, such as 'x'."
            " Take the 1 that all runs have with: --common-items"
        )


def test_runs_with_no_common_item_are_refused(here: Path) -> None:
    recorded(here / "results" / "one", {"a": [0.0]})
    recorded(here / "results" / "two", {"x": [1.0]})

    with pytest.raises(UserError, match=r"^runs one, two have no item in common$"):
        command("compare", "one", "two", "--common-items")


def test_runs_in_which_all_was_lost_are_refused(here: Path) -> None:
    recorded(here / "results" / "one", {"a": [LOST]})
    recorded(here / "results" / "two", {"a": [1.0]})

    with pytest.raises(BenchmarkError, match="no item has a valid rollout in both runs"):
        command("compare", "one", "two")
    assert told("stats", "one")["lines"][-1]["runs"][0]["valid_mean"] is None
    assert " - " in command("stats", "one").stdout


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["one"], r"^RUN: two runs are needed, and one is given$"),
        (["one", "one"], r"^RUN: run one is given twice$"),
        (["one", "results/one/"], r"^RUN: run one is given twice$"),
        (["one", "none"], r"^no run 'none': neither"),
        (["one", "two", "--difference", "0"], r"^--difference: must be more than 0 and at most 1, got 0$"),
        (["one", "two", "--difference", "nan"], r"^--difference: must be more than 0 and at most 1, got nan$"),
        (
            ["one", "two", "--rollout", "a"],
            r"^--rollout: must be an item's id, # and an index, as in task-1#0, got 'a'$",
        ),
        (["one", "two", "--rollout", "x#0"], r"^--rollout: run one has no rollout 'x#0'$"),
        (["one", "two", "--rollout", "a#9"], r"^--rollout: run one has no rollout 'a#9'$"),
        (
            ["one", "two", "--metric", "f1_score"],
            r"^run one has no report with f1_score; make it with: rollouts rescore ",
        ),
        (["one", "two", "--metric", "odd"], r"odd"),
        (["one", "two", "--metric", "../../x"], r"x"),
        ([*(["one"] * 101)], r"^RUN: 101 runs are given, and at most 100 are taken$"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises((UserError, BenchmarkError), match=sentence) as caught:
        command("compare", *arguments)

    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("two")
def test_reports_of_another_metric_do_not_fit(here: Path) -> None:
    folder = recorded(here / "results" / "three", {name: [0.0, 0.0] for name in DOMAINS})
    text = folder.evaluation.read_text("utf-8")
    folder.evaluation.write_text(
        text.replace('"metric_name": "environment"', '"metric_name": "f1_score"'), encoding="utf-8"
    )

    with pytest.raises(
        UserError, match="item 'a' is scored with environment in run one, and with f1_score in run three"
    ):
        command("compare", "one", "three")


@pytest.mark.usefixtures("two")
def test_reports_of_a_named_metric_are_taken(here: Path) -> None:
    from rollout_tasks.runs.folder import RunFolder  # here, as only this test needs it

    for name in ("one", "two"):
        score_run(RunFolder(here / "results" / name), "f1_score", suffix="-f1_score")

    assert told("compare", "one", "two", "--metric", "f1_score")["items"] == 4


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("text", ["[]", "{}", "x", '{"evaluation_results": [1], "summary": {}, "benchmark_info": {}}'])
def test_a_report_of_another_format_is_named(here: Path, text: str) -> None:
    (here / "results/two/evaluation.json").write_text(text)

    for name, arguments in (("compare", ["one", "two"]), ("stats", ["two"])):
        with pytest.raises(
            BenchmarkError, match=r"two/evaluation\.json: is not an? (JSON|evaluation) report"
        ) as caught:
            command(name, *arguments)
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("two")
def test_a_run_without_a_report_says_what_to_do(here: Path) -> None:
    (here / "results/two/evaluation.json").unlink()

    for name in ("compare", "stats"):
        with pytest.raises(UserError, match=r"^run two has no report; score it with: rollouts rescore "):
            command(name, "one", "two")


@pytest.mark.usefixtures("two")
def test_a_report_that_a_link_leads_to_is_not_read(here: Path) -> None:
    (here / "results/two/evaluation.json").rename(here / "moved.json")
    (here / "results/two/evaluation.json").symlink_to(here / "moved.json")

    with pytest.raises(UserError, match="is not read: a link leads to it"):
        command("compare", "one", "two")


@pytest.mark.usefixtures("two")
def test_runs_of_one_name_are_told_apart_by_their_paths(here: Path) -> None:
    (here / "elsewhere").mkdir()
    (here / "results" / "two").rename(here / "elsewhere" / "one")

    found = told("compare", "one", "elsewhere/one")

    assert [run["run"] for run in found["runs"]] == [str(here / "results/one"), str(here / "elsewhere/one")]


@pytest.mark.usefixtures("two")
def test_figures_of_several_runs() -> None:
    found = told("stats", "one", "two")

    lines = {(line["kind"], line["name"]): line for line in found["lines"]}
    assert lines["group", "Office"]["items"] == 2
    assert lines["group", "OS"]["runs"][0]["valid_mean"] == 0.5
    overall = lines["overall", "overall"]
    assert [run["valid_mean"] for run in overall["runs"]] == [pytest.approx(0.5), pytest.approx(3.5 / 4)]
    assert [run["score"] for run in overall["runs"]] == [2 / 8, 7 / 8]
    assert overall["together"]["any_correct"] == 4
    said = command("stats", "one", "two").stdout
    assert "all together" in said
    assert [line.split()[1] for line in said.splitlines() if "Office" in line or "overall" in line] == [
        "Office",
        "overall",
    ]
    assert "all together" not in command("stats", "one").stdout


@pytest.mark.usefixtures("two")
def test_each_items_best_is_written_as_csv(here: Path) -> None:
    command("stats", "one", "two", "--csv", "items.csv")

    with (here / "items.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["item_id", "domain", "one", "two", "max", "any_correct"]
    assert rows[1:] == [
        ["a", "chrome", "0.0", "0.5", "1.0", "1"],
        ["b", "libreoffice_calc", "1.0", "1.0", "1.0", "1"],
        ["c", "libreoffice_writer", "", "1.0", "1.0", "1"],
        ["d", "os", "0.5", "1.0", "1.0", "1"],
    ]
    with pytest.raises(OSError, match="No such file") as caught:
        command("stats", "one", "--csv", "missing/items.csv")
    assert caught.value.filename == "missing/items.csv"


@pytest.mark.usefixtures("two")
def test_latency_of_a_run() -> None:
    found = told("latency", "two")

    assert (found["rollouts"], found["rollout"]["p50"]) == (8, 13.0)
    assert found["stages"]["model"]["p99"] == 6.0
    assert sum(stage["share"] for stage in found["stages"].values()) == pytest.approx(1.0)
    assert [turn["turn"] for turn in found["turns"]] == [1, 2, 3]
    assert found["turns"][0]["environment"]["share"] == pytest.approx(1 / 3)
    assert found["vms"]["used"] == 1
    said = command("latency", "two").stdout
    for name in ("waiting for a VM", "model", "environment", "evaluation", "the rest"):
        assert name in said
    assert re.search(r"VMs: 1 were used, \d+\.\d% of the time", said)


@pytest.mark.usefixtures("two")
def test_latency_says_which_results_it_left_out(here: Path) -> None:
    path = here / "results/two/a/0/result.json"
    path.unlink()
    path.write_text("{")

    found = command("latency", "two")

    assert found.stderr.startswith("left out: 1 results or records that cannot be read: ")
    assert told("latency", "two")["rollouts"] == 7


def test_latency_of_a_run_without_results_is_refused(here: Path) -> None:
    folder = recorded(here / "results" / "one", {"a": [1.0]})
    (folder.rollout("a#0") / "result.json").unlink()

    with pytest.raises(UserError, match="run one has no rollout that has ended"):
        command("latency", "one")


@pytest.mark.usefixtures("two")
def test_foreign_names_are_shown_as_text(here: Path) -> None:
    odd = {"\x1b[2Jx [bold]$\\frac": [0.0], "b\u202e": [1.0]}
    recorded(here / "results" / "odd", odd, domains=dict.fromkeys(odd, "d\x1b]0;t\x07$x^{"))
    recorded(here / "results" / "even", {name: [0.5] for name in odd})

    for name, arguments in (("compare", ["odd", "even"]), ("stats", ["odd"]), ("latency", ["odd"])):
        said = command(name, *arguments)
        assert (said.stdout + said.stderr).replace("\n", "").isprintable()


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("name", APPLICATIONS)
def test_plots_without_matplotlib_say_what_is_missing(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    runs = ["one"] if name == "latency" else ["one", "two"]

    with pytest.raises(UserError, match=r"^--plots needs the package matplotlib: uv pip install matplotlib$"):
        command(name, *runs, "--plots", "plots")
    assert not (here / "plots").exists()
    assert command(name, *runs).exit_code == 0
