"""What is written down of what made a run."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import celery
import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.runs import provenance as module
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.provenance import provenance


def test_the_description_of_a_run_says_what_made_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.description.create(RunConfig(), [Item("a", "?"), Item("b", "?")], data_path="x.jsonl", data_name="x")

    document = json.loads((folder.path / "run.json").read_text())

    made_by = document["made_by"]
    assert made_by["packages"]["celery"] == celery.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", made_by["python"])
    assert made_by["submitted_on"]
    content = (folder.path / "items.jsonl").read_bytes()
    assert document["benchmark"]["items_sha256"] == hashlib.sha256(content).hexdigest()


def test_the_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", "-C", str(tmp_path), *name, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert module._commit(tmp_path) == "", "no checkout"
    git("init", "--quiet")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "--quiet", "--message", "one")
    git("tag", "a-tag")
    commit = git("rev-parse", "HEAD")
    assert module._commit(tmp_path) == commit
    (tmp_path / "file").write_text("two")
    assert module._commit(tmp_path) == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert module._commit(tmp_path) == "", "no git"


def test_nothing_secret_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hunter2")
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@127.0.0.1/0")

    assert "hunter2" not in json.dumps(provenance())
