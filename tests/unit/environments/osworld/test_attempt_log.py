"""desktop-env's log in an attempt's folder: it says what pages and guests chose, and neither obeys it nor takes it for records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("desktop_env")

from rollout_tasks.cells.output_log import LARGEST_LOG
from rollout_tasks.environments.osworld.attempt_files import WorkerFiles
from rollout_tasks.environments.osworld.session import keeping_records

HOSTILE = "\x1b]0;title\x07 \x9b31m \r \u2028 \u202e \u200b \0"


@pytest.fixture
def files(tmp_path: Path) -> WorkerFiles:
    return WorkerFiles(tmp_path)


@pytest.fixture
def logger(files: WorkerFiles) -> Iterator[logging.Logger]:
    """One of desktop-env's, as in a cell, where nothing else keeps records to a line."""
    with ExitStack() as stack:
        factory = logging.getLogRecordFactory()
        stack.callback(logging.setLogRecordFactory, factory)
        logging.setLogRecordFactory(logging.LogRecord)
        stack.enter_context(keeping_records(files))
        yield logging.getLogger("desktopenv.controller")


def written(folder: Path) -> str:
    return (folder / "desktop-env.log").read_bytes().decode()


@pytest.mark.parametrize("way", ["in the worker", "in a cell"])
def test_it_steers_no_terminal(files: WorkerFiles, tmp_path: Path, way: str) -> None:
    text = f"\nPrinted:\n\ta page's title: <{HOSTILE}>\n"

    if way == "in a cell":
        files.log_bytes(text.encode())
    else:
        files.log(text)

    said = written(tmp_path)
    assert said.startswith("\nPrinted:\n\ta page's title: <\ufffd]0;title\ufffd ")
    assert said.endswith(">\n")
    assert said.replace("\n", "").replace("\t", "").isprintable(), repr(said)


def test_bytes_of_any_kind_are_text_there(files: WorkerFiles, tmp_path: Path) -> None:
    euro = "€".encode()
    for piece in (b"\xff<", euro[:1], euro[1:], b">\n"):
        files.log_bytes(piece)

    assert written(tmp_path) == "\ufffd<€>\n"


def test_what_is_replaced_takes_no_more_room_than_there_is(files: WorkerFiles, tmp_path: Path) -> None:
    for _ in range(3):
        files.log_bytes(b"x" * (LARGEST_LOG // 3 - 1))
    files.log_bytes(b"\x1b" * 100)

    assert (tmp_path / "desktop-env.log").stat().st_size <= LARGEST_LOG


def test_a_record_is_a_line(logger: logging.Logger, tmp_path: Path) -> None:
    logger.info("title:  %s", f"a\n2026-01-01 00:00:00,000 INFO desktopenv: all is well{HOSTILE}")
    try:
        raise RuntimeError("what went wrong")
    except RuntimeError:
        logger.exception("it failed\r\n")

    first, second, *traceback = written(tmp_path).splitlines()
    assert " INFO desktopenv.controller: title: a 2026-01-01 00:00:00,000 INFO desktopenv: all is well" in first
    assert second.endswith(" ERROR desktopenv.controller: it failed")
    assert (traceback[0], traceback[-1]) == ("Traceback (most recent call last):", "RuntimeError: what went wrong")
