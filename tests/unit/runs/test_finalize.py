"""The end of a run in its folder: what is written, by whom, until when, and what is said where it cannot be."""

from __future__ import annotations

import errno
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import connect
from rollout_tasks.runs import finalize as module
from rollout_tasks.runs.events import EventsFile
from rollout_tasks.runs.finalize import _judge, _write, finalize, score_run, write_reports
from rollout_tasks.runs.finalizer_claim import FinalizerClaim, Superseded
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.outcomes import outcomes
from rollout_tasks.runs.store import RunStore, run_store
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import LeaseRecord, Verdict
from rollout_tasks.settings import settings
from tests.conftest import free_port

RUN = "night-1"
KEY = f"{{run:{RUN}}}"
ITEMS = [Item("a", "one?", "1"), Item("b", "two?", "2")]
REPORTS = ["evaluation.json", "events.jsonl", "report.md"]


class Finished:
    """A run whose rollouts are all in, in its folder and in the run store."""

    def __init__(self, redis_url: str, path: Path, **options: Any) -> None:
        self.store = RunStore(redis.Redis.from_url(redis_url, decode_responses=True), silent_seconds=60)
        self.config = RunConfig.model_validate({"env_mode": "math", **options})
        self.folder = RunFolder(path)
        self.folder.description.create(self.config, ITEMS, data_path="x.jsonl", data_name="x")
        stored = reserve(self.store.client, RUN, self.config, str(path), len(ITEMS))
        names = [f"{item.id}#0" for item in ITEMS]
        stored.add_items(ITEMS, names)
        assert stored.everything_sent()
        for name in names:
            self.finish(name)

    def finish(self, rollout_id: str) -> None:
        self.store.claim(RUN, rollout_id, {"token": rollout_id})
        lease = LeaseRecord("vm-1", 1, 0.0, 5.0, 6.0)
        verdict = Verdict(
            rollout_id, self.folder.begin_attempt(rollout_id, 1), "completed", answer="1", worker="w", lease=lease
        )
        self.folder.write_attempt(verdict)
        self.folder.settle(verdict, written=True)
        assert self.store.commit(RUN, verdict, rollout_id).outcome == "ok"

    def write(self, check: Any = lambda: None) -> str:
        return _write(self.folder, self.config, self.store, RUN, check)

    @property
    def written(self) -> list[str]:
        return sorted(path.name for path in self.folder.path.iterdir() if path.name in REPORTS or "tmp" in path.name)


@pytest.fixture
def finished(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Finished]:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    for cache in (settings, run_store):
        cache.cache_clear()
    yield Finished(redis_url, tmp_path / RUN)
    for cache in (settings, run_store):
        cache.cache_clear()


def test_a_finished_run_is_scored_once(finished: Finished, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", module.__name__)

    assert [finalize(RUN), finalize(RUN)] == ["done", "over"]

    assert caplog.messages == [f"run {RUN}: done", f"run {RUN}: not finalised now (over)"]
    assert finished.written == REPORTS
    report = json.loads(finished.folder.evaluation.read_text("utf-8"))
    assert report["benchmark_info"] == {
        "name": "x",
        "description": f"run {RUN}, environment math, agent tool_calling, model {finished.config.model.name}",
        "data_path": "x.jsonl",
        "total_items": 2,
        "scripted": False,
    }
    assert [(row["item_id"], row["score"]) for row in report["evaluation_results"]] == [("a", 1.0), ("b", 0.0)]
    assert len(finished.folder.events.read_text("utf-8").splitlines()) == 4
    progress = finished.store.progress(RUN)
    assert progress is not None
    assert progress.problem == ""
    assert abs(_age(finished.store.client.hget(KEY, "finished"))) < 600


def _age(stamp: Any) -> float:
    assert stamp.endswith("+00:00")
    assert "." not in stamp
    return (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()


def test_a_run_that_nobody_knows_is_not_finalised(finished: Finished) -> None:
    assert finalize("no-such-run") == "unknown"


def test_what_somebody_else_finalises_is_left_to_them(finished: Finished) -> None:
    assert finished.store.begin_finalize(RUN, "theirs", silent_seconds=60) == "go"

    assert finalize(RUN) == "busy"

    assert finished.written == []
    assert finished.store.beat_finalize(RUN, "theirs") == "finalizing"


def test_a_finaliser_that_was_replaced_writes_nothing_more(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ROLLOUT_LEASE_TTL", "0.3")
    for cache in (settings, run_store):
        cache.cache_clear()
    note = EventsFile.note

    def replaced(events: EventsFile, verdicts: Sequence[Verdict | None]) -> Sequence[Verdict | None]:
        assert finished.store.begin_finalize(RUN, "theirs", silent_seconds=0) == "go"
        time.sleep(0.4)  # so that it was silent for longer than it may be, unless it has asked and knows
        return note(events, verdicts)

    monkeypatch.setattr(EventsFile, "note", replaced)

    assert finalize(RUN) == "superseded"

    assert finished.written == []
    assert f"run {RUN}: finalising stopped: another process has taken it over" in caplog.messages
    assert finished.store.end_finalize(RUN, "theirs", "now") == "done"


@pytest.mark.parametrize(
    ("refused_at", "written"),
    [(1, []), (2, []), (3, ["evaluation.json"]), (4, ["evaluation.json", "report.md"]), (5, REPORTS)],
)
def test_each_file_takes_its_place_only_while_the_run_is_this_finalisers(
    finished: Finished, refused_at: int, written: list[str]
) -> None:
    asked: list[list[str]] = []

    def check() -> None:
        asked.append([name for name in finished.written if name in REPORTS])
        if len(asked) >= refused_at:
            raise Superseded

    if refused_at > 1 + len(REPORTS):  # it looks before it begins, too
        assert finished.write(check) == ""
    else:
        with pytest.raises(Superseded):
            finished.write(check)

    assert finished.written == written
    assert asked[:refused_at] == [[], [], ["evaluation.json"], ["evaluation.json", "report.md"]][:refused_at]


def test_a_run_that_is_not_to_be_scored_has_its_events_alone(redis_url: str, tmp_path: Path) -> None:
    finished = Finished(redis_url, tmp_path / RUN, evaluate_results=False)

    assert finished.write() == ""

    assert finished.written == ["events.jsonl"]
    assert len(finished.folder.events.read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", ", line 3: Expecting property name"),
        ('{"id": 7}', ", line 3: "),
        (json.dumps(ITEMS[0].as_dict()), "item 'a' is given twice"),
    ],
)
def test_items_that_are_broken_leave_a_run_without_a_report_and_say_why(
    finished: Finished, line: str, said: str
) -> None:
    with (finished.folder.path / "items.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")

    assert finalize(RUN) == "done"

    progress = finished.store.progress(RUN)
    assert progress is not None
    assert said in progress.problem
    assert "evaluation.json" not in finished.written


def test_a_metric_that_nobody_knows_leaves_the_events(finished: Finished) -> None:
    finished.config = finished.config.model_copy(update={"metric": "no-such"})

    assert "no-such" in finished.write()

    assert finished.written == ["events.jsonl"]
    assert len(finished.folder.events.read_text().splitlines()) == 4, "what could not be scored took place all the same"


def test_a_folder_that_is_gone_is_told(finished: Finished) -> None:
    path = finished.folder.path
    path.rename(path.with_name("elsewhere"))

    assert finished.write() == f"{path} is not a run's folder: it has no run.json"

    events = [json.loads(line) for line in finished.folder.events.read_text().splitlines()]
    assert sorted((event["task_id"], event["action"]) for event in events) == [
        *[("a#0", "allocate"), ("a#0", "release")],
        *[("b#0", "allocate"), ("b#0", "release")],
    ]


def test_items_that_are_gone_are_taken_from_the_run_store(finished: Finished) -> None:
    (finished.folder.path / "items.jsonl").unlink()

    assert finished.write() == ""

    report = json.loads(finished.folder.evaluation.read_text("utf-8"))
    assert report["benchmark_info"]["total_items"] == 2
    assert sorted(row["item_id"] for row in report["evaluation_results"]) == ["a", "b"]


def test_where_nothing_can_be_written_is_named(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    path = finished.folder.path
    path.rename(path.with_name("elsewhere"))
    path.write_text("in the way")
    assert finished.write() == f"{path} cannot be written: File exists"
    path.unlink()
    path.with_name("elsewhere").rename(path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(EventsFile, "note", full)
    assert finished.write() == f"{path} cannot be written: No space left on device"


def test_a_run_scored_again_leaves_the_first_report_alone(finished: Finished) -> None:
    score_run(finished.folder, "exact_match")
    before = finished.folder.evaluation.read_bytes()

    found = score_run(finished.folder, "similarity", suffix="-again")

    assert (found.json.name, found.markdown.name) == ("evaluation-again.json", "report-again.md")
    assert found.json.parent == found.markdown.parent == finished.folder.path
    assert json.loads(found.json.read_text())["summary"]["metric"] == found.overview.summary.metric == "similarity"
    assert found.markdown.exists()
    assert finished.folder.evaluation.read_bytes() == before


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (None, (RUN, "", [], [])),
        ({"name": None, "path": None, "left_out": None, "doubted": None}, (RUN, "", [], [])),
        (
            {"name": "n", "path": "p", "left_out": ["c"], "doubted": ["d", "e"]},
            ("n", "p", ["c"], ["d", "e"]),
        ),
    ],
)
def test_a_report_says_what_its_items_were(finished: Finished, about: Any, said: tuple[Any, ...]) -> None:
    path = finished.folder.path / "run.json"
    document = json.loads(path.read_text())
    document.pop("benchmark")
    path.write_text(json.dumps(document | ({} if about is None else {"benchmark": about})))

    score_run(finished.folder, "exact_match")

    info = json.loads(finished.folder.evaluation.read_text())["benchmark_info"]
    assert (info["name"], info["data_path"], info.get("left_out", []), info.get("doubted", [])) == said


def judged(finished: Finished, check: Any = lambda: None) -> Any:
    found = outcomes(
        finished.folder.description.each_item(), 1, lambda names: [finished.folder.verdict(name) for name in names]
    )
    return write_reports(finished.folder, finished.config, "llm_judgement", found, total_items=2, check=check)


def asks(finished: Finished, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """The run's judge is there."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    settings.cache_clear()
    model = finished.config.model.model_copy(update={"base_url": f"http://127.0.0.1:{port}/v1", "name": "actor"})
    finished.config = finished.config.model_copy(update={"model": model})


def test_a_judge_is_not_asked_by_who_was_replaced(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced() -> None:
        raise Superseded

    with socket.create_server(("127.0.0.1", 0)) as server:
        asks(finished, monkeypatch, server.getsockname()[1])
        with pytest.raises(Superseded):
            judged(finished, replaced)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()

    assert finished.written == []


class Grader(BaseHTTPRequestHandler):
    """A model that finds everything correct."""

    asked: ClassVar[list[str]] = []
    logins: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.logins.append(self.headers["Authorization"])
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"])
        message = {"role": "assistant", "content": "Correct"}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        reply["choices"] = [{"index": 0, "finish_reason": "stop", "message": message}]
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_judges_verdicts_are_kept_and_not_asked_for_again(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    Grader.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Grader) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            asks(finished, monkeypatch, server.server_port)
            scores = [judged(finished).overview.summary.average_score for _ in range(2)]
        finally:
            server.shutdown()

    assert scores == [1.0, 1.0]
    assert Grader.asked == ["actor", "actor"]
    assert len(finished.folder.judged.read_text("utf-8").splitlines()) == 2


@pytest.mark.parametrize("blanks", ["\n", "\r", "\r\n", " "])
def test_a_judge_gets_the_key_without_blanks(finished: Finished, monkeypatch: pytest.MonkeyPatch, blanks: str) -> None:
    Grader.logins.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Grader) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            asks(finished, monkeypatch, server.server_port)
            monkeypatch.setenv("OPENAI_API_KEY", f"sk-secret{blanks}")
            settings.cache_clear()
            score = judged(finished).overview.summary.average_score
        finally:
            server.shutdown()

    assert "sk-secret" not in finished.folder.evaluation.read_text("utf-8")
    assert "sk-secret" not in finished.folder.report.read_text("utf-8")
    assert (score, Grader.logins) == (1.0, ["Bearer sk-secret"] * 2)


def test_a_key_that_cannot_be_sent_ends_the_report_but_not_the_run(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks(finished, monkeypatch, 9)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-sec\nret")
    settings.cache_clear()

    with pytest.raises((BenchmarkError, UserError), match="OPENAI_API_KEY: contains characters") as caught:
        judged(finished)

    assert "sk-sec" not in str(caught.value)


def test_a_defect_while_reports_are_written_ends_the_run_without_one(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would be finalised again and again."""

    def defective(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("rollout_tasks.runs.finalize.write_reports", defective)

    assert finished.write() == "its report could not be made: ZeroDivisionError; the worker's log says where"
    assert "a defect" in caplog.text


def test_a_judge_is_reached_where_the_run_or_else_the_machine_says(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_URL"):
        monkeypatch.delenv(name, raising=False)
    settings.cache_clear()
    with ExitStack() as opened, pytest.raises(Exception, match="llm_judgement needs a model"):
        _judge(finished.folder, finished.config, lambda: None, opened)

    monkeypatch.setenv("OPENAI_BASE_URL", "http://machine/v1")
    settings.cache_clear()
    with ExitStack() as opened:
        judge = _judge(finished.folder, finished.config, lambda: None, opened)
        assert (judge.config.base_url, judge._key) == ("http://machine/v1", "")

    monkeypatch.setenv("OPENAI_API_KEY", "key")
    settings.cache_clear()
    config = RunConfig.model_validate({"model": {"name": "m", "base_url": "http://run/v1"}})
    with ExitStack() as opened:
        judge = _judge(finished.folder, config, lambda: None, opened)
        assert (judge.config.base_url, judge._key) == ("http://run/v1", "key")


def test_a_finaliser_that_loses_redis_goes_on_beating(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    settings.cache_clear()
    deadline = time.monotonic() + 60

    with FinalizerClaim(finished.store, RUN, "mine", interval=0.02) as claim:
        while len(caplog.messages) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        claim.check()
    claim._thread.join(60)

    assert not claim._thread.is_alive()
    assert all(said.startswith(f"finalising run {RUN}: Redis does not answer: ") for said in caplog.messages)


def test_a_finaliser_that_hears_that_it_was_replaced_beats_no_more(finished: Finished) -> None:
    assert finished.store.begin_finalize(RUN, "theirs", silent_seconds=60) == "go"

    with FinalizerClaim(finished.store, RUN, "mine", interval=0.02) as claim:
        claim._thread.join(60)
        assert not claim._thread.is_alive()
        with pytest.raises(Superseded, match=f"^run {RUN}: another process finalises it now$"):
            claim.check()


def test_a_finaliser_that_cannot_ask_waits_no_longer_than_its_store(finished: Finished) -> None:
    store = RunStore(connect(tries=0, url=f"redis://127.0.0.1:{free_port()}/0"), silent_seconds=60)
    claim = FinalizerClaim(store, RUN, "mine", interval=60)

    claim.check()
    claim._last_beat -= 61
    with pytest.raises(redis.RedisError):
        claim.check()


def test_a_run_is_scored_from_its_folder_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run's folder"):
        score_run(RunFolder(tmp_path), "exact_match")
