"""Files of text are UTF-8 whatever the machine's locale says: a run may be rolled out here and read there."""

from __future__ import annotations

import ast
import hashlib
import json
import locale
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.items import Item
from benchmark.whole_file import write_whole
from rollout_tasks.cli.result_tables import tables
from rollout_tasks.config import RunConfig
from rollout_tasks.runs.durable_files import write_once
from rollout_tasks.runs.events import EventsFile
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import LeaseRecord, Verdict
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.conftest import REPOSITORY

WORD = "数学-ü"
NO_FILES = {
    "cell.open",
    "gateway.open",
    "_gateway(host).open",
    "self._gateway.open",
    "self.vm.open",
    "conversation.open",
    "os.open",
    "Image.open",
}
"""Calls named like those that open a file, and that open none, or a picture."""


def unnamed_encodings(path: Path) -> Iterator[str]:
    """Where a file is opened as text and nothing says in which encoding."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        texts = [value.value for part in given for value in ast.walk(part) if isinstance(value, ast.Constant)]
        if name in {"read_text", "write_text"}:
            named = len(node.args) > (name == "write_text")
        elif name in {"open", "fdopen"} and called not in NO_FILES:
            named = any(isinstance(text, str) and "b" in text for text in texts)
        else:
            continue
        if not named:
            yield f"{path.relative_to(REPOSITORY)}:{node.lineno}: {ast.unparse(node)}"


def test_whoever_opens_a_text_file_says_that_it_is_utf_8() -> None:
    files = sorted(path for name in ("rollout_tasks", "benchmark") for path in (REPOSITORY / name).rglob("*.py"))

    assert len(files) > 50
    assert [place for path in files for place in unnamed_encodings(path)] == []


@pytest.fixture
def ascii_only() -> Iterator[None]:
    """A locale in which text is ASCII, as on machines where nobody has chosen one."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    yield
    locale.setlocale(locale.LC_CTYPE, before)


def test_a_run_is_written_and_read_as_utf_8_where_the_locale_is_another(ascii_only: None, tmp_path: Path) -> None:
    assert locale.getencoding() != "UTF-8"
    folder = RunFolder(tmp_path / WORD)
    config = RunConfig(env_mode="math")
    folder.description.create(
        config, [Item(WORD, WORD, WORD)], data_path=f"{WORD}.jsonl", data_name=WORD, left_out=[WORD]
    )
    rollout_id = f"{WORD}#0"
    for number in (1, 2):
        assert folder.begin_attempt(rollout_id, number) == number
    header = {"started": 1.0, "worker": WORD, "vm_id": WORD}
    TrajectoryWriter(folder.attempt(rollout_id, 1)).start(header)
    ended = Verdict(
        rollout_id, 2, "completed", answer=WORD, score=1.0, worker=WORD, lease=LeaseRecord(WORD, 1, 0.0, 5.0, 6.0)
    )
    folder.write_attempt(ended)
    assert folder.settle(ended, written=True) == ended
    with EventsFile(folder) as events:
        events.note([ended])
        events.publish()
    score_run(folder, "exact_match")

    assert folder.description.config() == config
    assert folder.description.document()["benchmark"] == {
        "name": WORD,
        "path": f"{WORD}.jsonl",
        "left_out": [WORD],
        "doubted": [],
        "items_sha256": hashlib.sha256((folder.path / "items.jsonl").read_bytes()).hexdigest(),
    }
    assert folder.description.items() == [Item(WORD, WORD, WORD)]
    assert folder.verdict(rollout_id) == folder.finished(rollout_id) == ended
    assert list(folder.attempts(rollout_id)) == [ended]
    assert tables(folder).overall.solved == 1
    told = [json.loads(line) for line in folder.events.read_text("utf-8").splitlines()]
    assert {(event["worker_id"], event["instance_id"], event["task_id"]) for event in told} == {
        (WORD, WORD, rollout_id)
    }
    assert [event["action"] for event in told] == ["allocate", "allocate", "release", "worker_exit"]
    for path in (folder.path / "run.json", folder.path / "items.jsonl", folder.evaluation, folder.report):
        assert WORD in path.read_text("utf-8")


def test_a_whole_file_is_utf_8_in_every_way_of_writing_it(
    ascii_only: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "replaced", WORD)
    assert write_once(tmp_path / "nameless", WORD)
    monkeypatch.delattr("os.O_TMPFILE")
    assert write_once(tmp_path / "by name", WORD)

    assert {path.read_text("utf-8") for path in tmp_path.iterdir()} == {WORD}
    assert len(list(tmp_path.iterdir())) == 3
