"""A benchmark of questions about a corpus, as a user rolls it out: the real command, worker, index and scripted model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("tantivy")

ARCHITECTS = {"Rialto": "Antonio da Ponte", "Tower": "Horace Jones", "Alcantara": "Caius Julius Lacer"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name, architect in ARCHITECTS.items():
        (corpus / f"{name}.txt").write_text(f"The {name} bridge was designed by {architect}.")
    items = [
        {
            "id": name,
            "question": f"Who designed the {name} bridge?",
            "answer": architect,
            "script": [
                {"tool_calls": [{"name": "local_search", "arguments": {"query": f"{name} bridge", "top_k": 1}}]},
                {"text": architect, "when": f"The {name} bridge was designed by {architect}."},
            ],
        }
        for name, architect in ARCHITECTS.items()
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return tmp_path


def command(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REDIS_", "OPENAI_", "ROLLOUT_", "CELERY_"))
    }
    given = ["run", "--data-path", "questions.jsonl", "--env-mode", "rag", "--output-dir", "results", "--json"]
    return subprocess.run(
        [sys.executable, "-m", "rollout_tasks.cli.main", *given, *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def ended(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_questions_are_answered_from_the_corpus(folder: Path) -> None:
    end = ended(command(folder, "--corpus", "corpus", "--num-rollouts", "2"))

    assert (end["completed"], end["summary"]["average_score"]) == (3, 1.0)
    run = Path(end["folder"])
    for name, architect in ARCHITECTS.items():
        lines = (run / name / "0" / "attempt-1" / "trajectory.jsonl").read_text().splitlines()
        [step] = [one for one in map(json.loads, lines) if one["kind"] == "step"]
        found = f"[{name}.txt#1]\nThe {name} bridge was designed by {architect}."
        assert step["result"] == {"status": "success", "response": found}
        [(uri, digest)] = json.loads(lines[0])["header"]["downloads"].items()
        assert uri == (folder / "corpus").as_uri()
        assert len(digest) == 64
    parts = [
        path.name for path in (folder / "cache" / "computer-use-rollouts" / "retrieval").iterdir() if path.is_dir()
    ]
    assert sorted({name.partition("-")[0] for name in parts} - {"corpora"}) == ["passages"]


def test_a_wrong_corpus_is_refused_in_one_sentence_and_nothing_is_left(folder: Path) -> None:
    (folder / "corpus" / "more.jsonl").write_text('{"id": "Rialto.txt", "text": "twice"}\n')

    done = command(folder, "--corpus", "corpus")

    corpus = folder / "corpus"
    same = f"the id 'Rialto.txt' is that of {corpus}/Rialto.txt, too"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: --corpus: {corpus}/more.jsonl, line 1: {same}\n"
    assert not (folder / "results").exists()
