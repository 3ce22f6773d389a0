"""A task is called faithful only if workers installed as this machine can score it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from desktop_image.conformance.facts import Facts
from rollout_tasks.environments.osworld.conformance import conformance

READ = "compare_image_text"
LACKING = "the Python package easyocr on workers (evaluator.func)"


def task(metrics: Any, **more: Any) -> Item:
    evaluator = {"func": metrics, "result": {"type": "vm_file", "path": "/home/user/ls.png", "dest": "ls.png"}}
    return Item(id="a", question="Do it", metadata={"evaluator": evaluator, **more})


def verdict(item: Item) -> tuple[str, tuple[str, ...]]:
    (found,) = conformance([item], [Facts()])
    return found.verdict, tuple(found.reasons)


@pytest.fixture
def no_ocr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "easyocr", None)


@pytest.mark.usefixtures("no_ocr")
@pytest.mark.parametrize("metrics", [READ, [READ, "compare_docx_files"]])
def test_text_in_pictures_needs_the_package_that_reads_it(metrics: Any) -> None:
    assert verdict(task(metrics)) == ("needs", (LACKING,))


@pytest.mark.usefixtures("no_ocr")
def test_other_tasks_do_not_need_it() -> None:
    assert verdict(task("compare_docx_files")) == ("faithful", ())


@pytest.mark.usefixtures("no_ocr")
def test_it_is_named_beside_what_the_guest_needs() -> None:
    needs, reasons = verdict(task(READ, proxy=True))

    assert needs == "needs"
    assert reasons == ("a proxy (proxy)", LACKING)


@pytest.mark.usefixtures("no_ocr")
def test_a_difference_of_the_guest_does_not_hide_it() -> None:
    item = task(READ, config=[{"type": "open", "parameters": {"path": "/home/user/a.blend"}}])

    assert verdict(item) == ("needs", (LACKING,))


def test_with_the_package_nothing_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "easyocr.py").touch()
    monkeypatch.delitem(sys.modules, "easyocr", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    assert verdict(task(READ)) == ("faithful", ())


@pytest.mark.usefixtures("no_ocr")
def test_a_machine_without_desktop_env_knows_nothing_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "desktop_env", None)

    assert verdict(task(READ)) == ("faithful", ())
