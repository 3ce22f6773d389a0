"""`rollouts rescore` and `rollouts show`: which runs they take, and what they say was used."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import typer

from benchmark.items import Item
from benchmark.stored_report import scan_report
from rollout_tasks.cli.rescore import rescore
from rollout_tasks.cli.run_progress import status
from rollout_tasks.cli.show import show
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs.finalize import write_reports
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.outcomes import outcomes
from rollout_tasks.runs.verdict import Verdict, cancelled_verdict

NAMES = ("a", "b", "c")


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "night-1")
    items = [Item(name, "?", "red green") for name in NAMES]
    folder.description.create(RunConfig(metric="exact_match"), items, data_path="x.jsonl", data_name="x")
    return folder


def end(folder: RunFolder, name: str, score: float | None = None, failure: FailureClass | None = None) -> None:
    rollout_id = f"{name}#0"
    status = "failed" if failure else "completed"
    number = folder.begin_attempt(rollout_id, 1)
    verdict = Verdict(rollout_id, number, status, answer="red", score=score, failure_class=failure)
    folder.write_attempt(verdict)
    folder.settle(verdict, written=True)


def cancelled(folder: RunFolder) -> None:
    """The run's report, as the finaliser writes it when Redis has the rest as cancelled."""
    config = folder.description.config()
    found = outcomes(
        folder.description.each_item(),
        1,
        lambda names: [folder.settled(name) or cancelled_verdict(name, "cancelled") for name in names],
    )
    write_reports(folder, config, config.metric, found, total_items=len(NAMES))


def said(
    command: object, folder: RunFolder, capsys: pytest.CaptureFixture[str], **options: object
) -> tuple[int, str, str]:
    code = 0
    try:
        command(run=str(folder.path), output_dir=Path("results"), **{"as_json": False, **options})  # type: ignore[operator]
    except typer.Exit as done:
        code = done.exit_code
    return code, *capsys.readouterr()


def test_a_run_that_goes_on_is_not_scored(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    end(folder, "a")
    folder.begin_attempt("b#0", 1)

    with pytest.raises(UserError) as caught:
        said(rescore, folder, capsys, metric="f1_score")

    assert str(caught.value) == (
        "run night-1 is not scored: 2 of 3 rollouts have no verdict; see how far it is with: rollouts status"
        f" {folder.path}, or roll them out with: rollouts resume {folder.path}"
    )
    assert not list(folder.path.glob("*report*")) + list(folder.path.glob("*evaluation*"))


def test_an_attempt_that_was_lost_is_no_verdict_while_another_may_follow(folder: RunFolder) -> None:
    for name in NAMES[:2]:
        end(folder, name)
    folder.write_attempt(
        Verdict("c#0", folder.begin_attempt("c#0", 1), "failed", failure_class=FailureClass.VM_LOST, error="gone")
    )

    with pytest.raises(UserError, match="1 of 3 rollouts have no verdict"):
        rescore(run=str(folder.path), metric="f1_score")


def test_a_cancelled_run_is_scored_again_until_it_is_resumed(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    end(folder, "a")
    cancelled(folder)

    assert said(rescore, folder, capsys, metric="f1_score")[0] == 0

    end(folder, "b")  # a resume rolls out what was cancelled
    with pytest.raises(UserError, match="1 of 3 rollouts have no verdict"):
        said(rescore, folder, capsys, metric="f1_score")


def test_what_a_resume_has_set_aside_is_missing(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        end(folder, name, failure=FailureClass.VM_LOST if name == "c" else None)
    cancelled(folder)
    assert said(rescore, folder, capsys, metric="f1_score")[0] == 0

    folder.set_aside("c#0")

    with pytest.raises(UserError, match="1 of 3 rollouts have no verdict"):
        said(rescore, folder, capsys, metric="f1_score")


def test_what_the_metric_was_not_applied_to_is_said(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        end(folder, name, score=0.5)

    code, out, err = said(rescore, folder, capsys, metric="f1_score")

    assert (code, out.splitlines()[0]) == (0, "environment: 0.5, coverage 100.0%")
    assert err == "note: f1_score was not applied to 3 of 3 rollouts: their environment scored them itself\n"
    assert json.loads(said(rescore, folder, capsys, metric="f1_score", as_json=True)[1])["metric"] == "environment"


def test_a_metric_is_applied_to_what_has_no_score(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for name, score in zip(NAMES, (1.0, None, None), strict=True):
        end(folder, name, score=score)

    _, out, err = said(rescore, folder, capsys, metric="f1_score")

    assert out.startswith("f1_score: 0.7778, ")
    assert err == "note: f1_score was not applied to 1 of 3 rollouts: their environment scored them itself\n"


def test_a_metric_that_was_applied_to_all_needs_no_word(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        end(folder, name)

    assert said(rescore, folder, capsys, metric="f1_score")[2] == ""


def test_every_report_of_a_run_is_named(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        end(folder, name)
    for metric in ("exact_match", "f1_score", "numeric_match"):
        said(rescore, folder, capsys, metric=metric)

    shown = said(show, folder, capsys)[1]

    assert [line.rpartition("/")[2] for line in shown.splitlines() if line.startswith("Report: ")] == [
        "report.md",
        "report-f1_score.md",
        "report-numeric_match.md",
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_run_that_goes_on_is_not_shown(folder: RunFolder, as_json: bool) -> None:
    end(folder, "a")

    with pytest.raises(UserError) as caught:
        show(run=str(folder.path), as_json=as_json)

    assert str(caught.value) == (
        "run night-1 has no report: 2 of 3 rollouts have no verdict; see how far it is with: rollouts status"
        f" {folder.path}, or roll them out with: rollouts resume {folder.path}"
    )


def test_a_run_without_a_report_is_to_be_scored_first(folder: RunFolder) -> None:
    for name in NAMES:
        end(folder, name)

    with pytest.raises(UserError) as caught:
        show(run=str(folder.path))

    again = f"rollouts rescore {folder.path} --metric exact_match"
    assert str(caught.value) == f"run night-1 has no report; score it with: {again}"


class Judge(ThreadingHTTPServer):
    """A model that finds everything correct, or refuses to answer about an item."""

    refuses = frozenset(NAMES)


class _Grading(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Judge)
        self.rfile.read(int(self.headers["Content-Length"]))
        refused = self.headers["X-Session-Id"].removeprefix("judge/") in self.server.refuses
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Correct"}}]}).encode()
        self.send_response(400 if refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(name="judge")
def _judge() -> Iterator[Judge]:
    with Judge(("127.0.0.1", 0), _Grading) as judge:
        serving = threading.Thread(target=judge.serve_forever, args=(0.02,))
        serving.start()
        yield judge
        judge.shutdown()
        serving.join()


@pytest.fixture(name="judged")
def _judged(tmp_path: Path, judge: Judge) -> RunFolder:
    """A run that was cancelled after two of three rollouts, whose judge failed; its report has no score."""
    folder = RunFolder(tmp_path / "night-2")
    model = {"name": "m", "base_url": f"http://127.0.0.1:{judge.server_port}/v1"}
    config = RunConfig.model_validate({"env_mode": "math", "metric": "llm_judgement", "model": model})
    # Each with a question of its own: of two that are alike, one verdict counts for both.
    items = [Item(name, f"{name}?", "red") for name in NAMES]
    folder.description.create(config, items, data_path="x.jsonl", data_name="x")
    for name in NAMES[:2]:
        end(folder, name)
    cancelled(folder)
    assert "HTTP 400" in folder.report.read_text()
    return folder


def reports(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir() if path.suffix in {".json", ".md"})


def test_a_report_that_lacks_scores_gives_place_to_one_that_has_them(
    judged: RunFolder, judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = "1 of 3 answers got no score from llm_judgement, such as b#0: judge m: HTTP 400 from"
    judge.refuses = frozenset("b")

    code, out, err = said(rescore, judged, capsys, metric="llm_judgement")

    assert (code, out) == (1, f"llm_judgement: 0.3333, coverage 33.3%\nReport: {judged.report}\n")
    assert err.startswith(lost)
    assert err.endswith(f"score them again with: rollouts rescore {judged.path} --metric llm_judgement\n")
    judge.refuses = frozenset()

    code, out, err = said(rescore, judged, capsys, metric="llm_judgement")

    assert (code, err) == (0, "")
    assert out == f"llm_judgement: 0.6667, coverage 66.7%\nReport: {judged.report}\n"
    assert reports(judged) == ["evaluation.json", "report.md", "run.json"]
    assert "HTTP 400" not in judged.report.read_text()
    summary = scan_report(judged.evaluation)["summary"]
    assert summary["unscored"] == {}
    assert summary["standings"] == {"scored": 2, "cancelled": 1}
    assert summary["failures"]["cancelled"]["count"] == 1


def test_status_says_nothing_more_of_scores_once_there_are_all(
    judged: RunFolder, judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    end(judged, "c", failure=FailureClass.MAX_TURNS)
    cancelled(judged)
    assert status(str(judged.path), None, keep_on=False, as_json=False) == 1
    assert "2 of 3 answers got no score" in capsys.readouterr().err
    judge.refuses = frozenset()
    said(rescore, judged, capsys, metric="llm_judgement")

    assert status(str(judged.path), None, keep_on=False, as_json=False) == 0

    assert capsys.readouterr().err == ""


def test_a_report_stays_that_would_not_get_better(
    judged: RunFolder, judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    before = judged.evaluation.read_bytes(), judged.report.read_bytes()

    assert said(rescore, judged, capsys, metric="llm_judgement")[0] == 1
    assert said(rescore, judged, capsys, metric="f1_score")[0] == 0

    assert (judged.evaluation.read_bytes(), judged.report.read_bytes()) == before
    judge.refuses = frozenset()
    said(rescore, judged, capsys, metric="llm_judgement")
    complete = judged.evaluation.read_bytes()

    code, out, _ = said(rescore, judged, capsys, metric="llm_judgement")

    assert (code, out.splitlines()[1]) == (0, f"Report: {judged.path}/report-llm_judgement.md")
    assert judged.evaluation.read_bytes() == complete


def test_a_report_that_cannot_be_read_stays(judged: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    end(judged, "c", failure=FailureClass.MAX_TURNS)
    judged.evaluation.write_text("{")

    assert said(rescore, judged, capsys, metric="llm_judgement")[0] == 1

    assert judged.evaluation.read_text() == "{"
