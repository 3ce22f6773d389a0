"""What whoever waits is told of long work."""

from __future__ import annotations

import pytest

from rollout_tasks.retrieval import progress as module
from rollout_tasks.retrieval.progress import Progress


def test_short_work_says_nothing() -> None:
    said: list[str] = []

    Progress(said.append, "indexing", 2).add(1)

    assert said == []


def test_long_work_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(module, "SECONDS", 0.0)
    said: list[str] = []
    progress = Progress(said.append, "indexing corpus.jsonl", 8)

    for done in (1, 3, 40):
        progress.add(done)

    assert said == ["indexing corpus.jsonl: 12 %", "indexing corpus.jsonl: 50 %", "indexing corpus.jsonl: 100 %"]


def test_work_of_unknown_size_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    said: list[str] = []

    Progress(said.append, "indexing", 0).add(0)

    assert said == ["indexing: 0 %"]
