"""What the end of a run says on stdout and stderr and with its exit code, and what its tables add up."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from benchmark.report import read_report
from rollout_tasks.cli.program import DONE, INCOMPLETE
from rollout_tasks.cli.result_tables import Line, show_run, tables
from rollout_tasks.cli.run_progress import report
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.runs import ending
from rollout_tasks.runs.finalize import _judge, score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.settings import settings

DONE_RUN = Progress(
    run_id="night-1",
    state="done",
    total=8,
    pending=0,
    committed=8,
    running=0,
    completed=8,
    failed=0,
    cancelled=0,
    failures={},
    score_sum=4.0,
    created=1000.0,
)
SCORES: dict[str, tuple[str, Sequence[float | FailureClass | None]]] = {
    "calc": ("libreoffice_calc", [1.0, 0.5]),
    "writer": ("libreoffice_writer", [0.0, FailureClass.ENV_STEP]),
    "chrome": ("chrome", [FailureClass.MAX_TURNS, None]),
    "os": ("os", [1.0, 1.0 - 1e-12]),
}
"""By item: its domain, and the scores of its rollouts, how they failed, or that there is no verdict."""


def item(name: str, domain: str) -> Item:
    evaluator = {"func": "infeasible"} if name == "chrome" else {"func": "exact_match"}
    return Item(name, "?", metadata={"domain": domain, "evaluator": evaluator})


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "night-1")
    config = RunConfig(rollouts_per_item=2, metric="final_number")
    items = [item(name, domain) for name, (domain, _) in SCORES.items()]
    folder.description.create(config, items, data_path="x.jsonl", data_name="x")
    for name, (_, ends) in SCORES.items():
        for index, end in enumerate(ends):
            if end is not None:
                folder.settle(write(folder, f"{name}#{index}", end), written=True)
    return folder


def write(folder: RunFolder, rollout_id: str, end: float | FailureClass) -> Verdict:
    folder.begin_attempt(rollout_id, 1)
    if isinstance(end, FailureClass):
        verdict = Verdict(rollout_id, 1, "failed", failure_class=end, error="no")
    else:
        verdict = Verdict(rollout_id, 1, "completed", answer="yes", score=end)
    folder.write_attempt(verdict)
    return verdict


def test_tables_add_up_domains_and_osworlds_groups(folder: RunFolder) -> None:
    score_run(folder, "exact_match")

    found = tables(folder).as_dict()

    def lines(name: str) -> list[tuple[Any, ...]]:
        return [(row["name"], row["asked"], row["valid"], row["solved"], row["score"]) for row in found[name]]

    assert lines("domains") == [
        ("chrome", 2, 1, 0, 0.0),
        ("libreoffice_calc", 2, 2, 1, 0.75),
        ("libreoffice_writer", 2, 1, 0, 0.0),
        ("os", 2, 2, 2, 1.0),
    ]
    assert lines("groups") == [("OS", 2, 2, 2, 1.0), ("Office", 4, 3, 1, 0.375), ("Daily", 2, 1, 0, 0.0)]
    assert (found["infeasible"]["asked"], found["infeasible"]["valid"]) == (2, 1)
    assert tuple(found["overall"][key] for key in ("asked", "valid", "solved", "score_sum")) == (8, 6, 3, 3.5)
    assert found["overall"]["score"] == 3.5 / 8
    assert found["scripted"] is False
    assert found["summary"]["total_rollouts"] == 8
    assert json.loads(json.dumps(found)) == found


def test_every_domain_is_in_the_group_of_the_published_tables(tmp_path: Path) -> None:
    domains = [
        *("libreoffice_calc", "libreoffice_impress", "libreoffice_writer", "vlc", "thunderbird", "chrome"),
        *("gimp", "vs_code", "os", "multi_apps"),
    ]
    folder = RunFolder(tmp_path / "all")
    items = [Item(name, "?", metadata={"domain": name}) for name in domains]
    folder.description.create(RunConfig(), items, data_path="x.jsonl", data_name="x")
    score_run(folder, "exact_match")

    found = tables(folder)

    groups = [("OS", 1), ("Office", 3), ("Daily", 3), ("Professional", 2)]
    assert [(line.name, line.asked) for line in found.groups] == groups
    assert [line.name for line in found.domains] == sorted(domains)
    assert (found.infeasible, found.overall.asked, found.overall.valid) == (None, 10, 0)
    assert Line("nothing asked", 0, 0, 0, 0.0).score == 0.0


def test_what_is_shown_are_the_tables_and_where_to_look_further(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    score_run(folder, "exact_match")

    show_run(folder, Console(width=200, soft_wrap=True, highlight=False, markup=False))

    shown = capsys.readouterr().out
    scores, unsolved = shown.split("Not solved")
    rows = {row.split("│")[1].strip(): row for row in scores.splitlines() if row.startswith("│")}
    headings = next(row for row in shown.splitlines() if row.startswith("┃"))
    assert [cell.strip() for cell in headings.split("┃")[1:6]] == ["", "asked", "valid", "solved", "score"]
    assert list(rows) == [
        *("chrome", "libreoffice_calc", "libreoffice_writer", "os"),
        *("OS", "Office", "Daily", "infeasible", "overall"),
    ]
    assert [cell.strip() for cell in rows["overall"].split("│")[2:6]] == ["8", "6", "3", "43.8%"]
    name, *figures = rows["overall"].split("│")[1:6]
    assert name.startswith(" overall ")
    assert all(figure == f" {figure.strip()} ".rjust(len(figure)) for figure in figures), "figures stand on the right"
    assert "environment: 0.4375 (losses count 0), coverage 87.5%, bounds 0.4375 to 0.6875" in shown
    assert "max@2: 0.5, pass@1 " in shown
    assert "env_step: 1, such as writer#1" in shown
    assert f"Report: {folder.report}" in shown
    assert "scripted" not in shown
    first = next(row for row in unsolved.splitlines() if row.startswith("│ chrome#0 "))
    assert [cell.strip() for cell in first.split("│")[1:5]] == ["chrome#0", "0", "max_turns", "chrome/0"]


def test_each_sentence_is_one_line_however_narrow_the_terminal_and_as_it_is(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    score_run(folder, "exact_match")
    values = json.loads(folder.evaluation.read_text("utf-8"))
    values["benchmark_info"]["scripted"] = True
    folder.evaluation.write_text(json.dumps(values), "utf-8")
    shown_folder = RunFolder(folder.path.with_name("night [b]1"))
    folder.path.rename(shown_folder.path)

    show_run(shown_folder, Console(width=30, force_terminal=True, color_system="standard"))

    shown = capsys.readouterr().out.splitlines()
    scores_end, unsolved_end = (number for number, line in enumerate(shown) if line.startswith("└"))
    unsolved = next(number for number, line in enumerate(shown) if "Not solved" in line)
    assert [shown[0], *shown[scores_end + 1 : unsolved], *shown[unsolved_end + 1 :]] == [
        "\x1b[1mThe answers came from the scripted model: these scores say nothing about any agent.\x1b[0m",
        _sentence(values),
        _tries(values),
        "cancelled: 1, such as chrome#1: the run ended before it had a result",
        "env_step: 1, such as writer#1: no",
        "max_turns: 1, such as chrome#0: no",
        f"Report: {shown_folder.report}",
    ]
    assert "Run night [b]1" in re.sub(r"\x1b\[[\d;]*m", "", shown[1])
    assert sum(line.startswith("├") for line in shown[:scores_end]) == 2, "domains, groups and the sum are told apart"


def _sentence(report: dict[str, Any]) -> str:
    summary = report["summary"]
    low, high = summary["confidence_interval"]
    assert low < high
    return (
        "environment: 0.4375 (losses count 0), coverage 87.5%, bounds 0.4375 to 0.6875"
        f"; over valid ones {summary['valid_mean']:.4g} (95 %: {low:.4g} to {high:.4g})"
    )


def _tries(report: dict[str, Any]) -> str:
    tries = report["summary"]["pass_at_k"]
    assert sorted(tries) == ["1", "2"]
    return f"max@2: 0.5, pass@1 {tries['1']:.4g}, pass@2 {tries['2']:.4g}"


@pytest.mark.parametrize("left_out", ["valid_mean", "confidence_interval"])
def test_where_no_mean_is_valid_none_is_shown(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], left_out: str
) -> None:
    score_run(folder, "exact_match")
    values = json.loads(folder.evaluation.read_text("utf-8"))
    values["summary"][left_out] = None
    folder.evaluation.write_text(json.dumps(values), "utf-8")

    show_run(folder, Console(width=200))

    assert "bounds 0.4375 to 0.6875\n" in capsys.readouterr().out


def test_a_domain_is_shown_as_it_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "odd")
    names = ["[red]", "[/b]", "1.5"]
    items = [Item(name, "?", metadata={"domain": name}) for name in names]
    folder.description.create(RunConfig(), items, data_path="x.jsonl", data_name="x")
    score_run(folder, "exact_match")

    show_run(folder, Console(width=100))

    shown = capsys.readouterr().out
    assert all(f"│ {name} " in shown for name in names)


def test_scores_of_the_scripted_model_are_said_to_be_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "tried")
    config = RunConfig()
    config = config.model_copy(update={"model": config.model.model_copy(update={"scripted": True})})
    folder.description.create(config, [Item("one", "?", metadata={"domain": "os"})], data_path="x.jsonl", data_name="x")
    folder.settle(write(folder, "one#0", 1.0), written=True)
    score_run(folder, "exact_match")

    show_run(folder, Console(width=200))

    shown = capsys.readouterr().out
    assert "The answers came from the scripted model" in shown
    assert "max@" not in shown
    assert "environment: 1 (losses count 0)" in shown, "no metric was asked"
    assert "infeasible" not in shown
    assert read_report(folder.evaluation)["benchmark_info"] == {
        "name": "x",
        "description": "run tried, environment osworld, agent tool_calling, model scripted",
        "data_path": "x.jsonl",
        "total_items": 1,
        "scripted": True,
    }


def test_what_failed_is_shown_as_it_was_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "odd")
    folder.description.create(RunConfig(), [Item("one", "?")], data_path="x.jsonl", data_name="x")
    folder.begin_attempt("one#0", 1)
    verdict = Verdict("one#0", 1, "failed", failure_class=FailureClass.MODEL, error="it said [/b] and [red]no")
    folder.write_attempt(verdict)
    folder.settle(verdict, written=True)
    score_run(folder, "exact_match")

    show_run(folder, Console(width=200))

    assert "it said [/b] and [red]no" in capsys.readouterr().out


@pytest.mark.parametrize(("chosen", "asked"), [("grader", "grader"), (None, "actor")])
def test_the_judge_is_the_one_that_the_run_names_else_its_model(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, chosen: str | None, asked: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    settings.cache_clear()
    config = RunConfig.model_validate({"judge_model": chosen, "model": {"name": "actor"}})

    with ExitStack() as opened:
        assert _judge(folder, config, lambda: None, opened).config.model == asked


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"item": 1}, "KeyError"),
        (7, "TypeError"),
        ({"rollouts": [{"score": []}]}, "KeyError"),
        ({"rollouts": [{"score": [1]}], "domain": "os", "item_id": "a"}, "TypeError"),
    ],
)
def test_a_file_that_is_no_report_is_named(folder: RunFolder, row: Any, error: str) -> None:
    report = {"benchmark_info": {}, "evaluation_results": [row], "summary": {}}
    folder.evaluation.write_text(json.dumps(report))

    with pytest.raises(BenchmarkError, match=rf"evaluation\.json: is not an evaluation report: {error}"):
        tables(folder)


def told(
    capsys: pytest.CaptureFixture[str], progress: Progress, folder: RunFolder, *, as_json: bool = False
) -> tuple[int, str, str]:
    code = report(progress, folder, Console(width=200), as_json=as_json)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_run_that_lost_nothing_ends_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "night-1")
    folder.description.create(RunConfig(), [item("os", "os")], data_path="x.jsonl", data_name="x")
    folder.settle(write(folder, "os#0", 1.0), written=True)
    score_run(folder, "exact_match")

    code, out, err = told(capsys, DONE_RUN, folder)

    assert (code, err) == (DONE, "")
    assert "overall" in out


def test_agents_failures_are_no_losses(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, replace(DONE_RUN, failures={"max_turns": 3, "timeout": 1}), folder) == (DONE, "", "")


def test_losses_are_counted_and_how_to_try_again_is_said(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    failures = {"env_step": 1, "max_turns": 1, "worker_lost": 2, "cancelled": 3}

    code, _, err = told(capsys, replace(DONE_RUN, state="cancelled", failures=failures), folder)

    again = f"rollouts resume {folder.path}"
    assert code == INCOMPLETE
    assert err.splitlines() == [
        f"3 of 8 rollouts were lost to the infrastructure (env_step 1, worker_lost 2); try them again with: {again}",
        f"3 of 8 rollouts were cancelled; roll them out with: {again}",
    ]


def test_a_half_submitted_run_is_said_to_be_that(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    progress = replace(DONE_RUN, state="half_submitted", pending=2, committed=1, problem="not this")

    code, _, err = told(capsys, progress, folder)

    assert code == INCOMPLETE
    assert err == (
        "run night-1 is half-submitted: its submission ended when 3 of 8 rollouts were stored, and none was sent;"
        f" complete it with: rollouts resume {folder.path}\n"
    )


def test_a_run_without_a_report_says_why(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    ending.record_end(folder)

    code, out, err = told(capsys, replace(DONE_RUN, problem="the disk is full"), folder)

    assert (code, out) == (INCOMPLETE, "")
    assert err == (
        f"the run has no report: the disk is full; score it with: rollouts rescore {folder.path} --metric final_number\n"
    )


def test_without_its_report_a_broken_run_says_so_all_the_same(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.path / "run.json").write_text("{")

    assert told(capsys, replace(DONE_RUN, problem="run.json is broken"), folder)[2] == (
        f"the run has no report: run.json is broken; once its folder can be read, score it with: rollouts rescore"
        f" {folder.path} --metric METRIC\n"
    )


def test_answers_without_a_score_are_losses(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    score_run(folder, "exact_match")
    values = json.loads(folder.evaluation.read_text())
    values["summary"]["metric"] = "exact_match"
    values["summary"]["unscored"] = {
        "judge_failed": {"count": 2, "example": "calc#0"},
        "other": {"count": 1, "example": "os#0"},
    }
    folder.evaluation.write_text(json.dumps(values))

    code, _, err = told(capsys, DONE_RUN, folder)

    assert code == INCOMPLETE
    assert err == (
        "3 of 8 answers got no score from exact_match, such as calc#0; score them again with:"
        f" rollouts rescore {folder.path} --metric exact_match\n"
    )


def test_a_program_gets_progress_folder_and_summary(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert "summary" not in json.loads(told(capsys, DONE_RUN, folder, as_json=True)[1])
    score_run(folder, "exact_match")

    found = json.loads(told(capsys, DONE_RUN, folder, as_json=True)[1])

    assert (found["state"], found["committed"], found["folder"]) == ("done", 8, str(folder.path))
    assert found["summary"]["average_score"] == pytest.approx(3.5 / 8)


def test_a_folder_that_is_gone_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys, DONE_RUN, RunFolder(tmp_path / "night-1"))

    assert (code, out) == (INCOMPLETE, "")
    assert err == f"the run's folder {tmp_path}/night-1 is gone, and its results and its report with it\n"
