"""One JSON object as an item: as in JSONL, or as an OSWorld task's file."""

from __future__ import annotations

import pytest

from benchmark.errors import BenchmarkError
from benchmark.items import Item, read_item


def test_an_item_is_read_as_in_jsonl() -> None:
    item = read_item({"id": "a", "question": "?", "answer": 4, "env_config": {"steps": 1}, "tag": "x"}, "task")

    assert item == Item("a", "?", "4", {"tag": "x"}, {"steps": 1})


def test_an_osworld_task_is_read_as_in_its_file() -> None:
    evaluator = {"func": "infeasible"}
    item = read_item({"id": "b", "instruction": "Open it.", "evaluator": evaluator, "snapshot": "chrome"}, "task")

    assert (item.id, item.question, item.env_config) == ("b", "Open it.", {"snapshot": "chrome"})
    assert item.metadata["evaluator"] == evaluator


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "task: question is missing"),
        ({"instruction": 1, "evaluator": {}}, "task: instruction must be text, got 1"),
        ({"question": "?", "id": "a/../b"}, "could lead out of a folder"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, object], said: str) -> None:
    with pytest.raises(BenchmarkError, match=said):
        read_item(document, "task")
