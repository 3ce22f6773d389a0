"""What tasks, guests and endpoints choose is shown and logged as text: it neither steers a terminal nor passes for more lines."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator

import pytest
import typer
from celery import signals
from rich.text import Text

from benchmark.items import Item
from rollout_tasks.app import app
from rollout_tasks.cli import conformance_table, prefetch, program, run_actions
from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.cli.pool_tables import events_table
from rollout_tasks.environments.base import Conformance
from rollout_tasks.log_lines import keep_to_one_line
from rollout_tasks.worker import bootsteps
from vm_pool import Event

HOSTILE = {
    "a cleared screen": "\x1b[2J",
    "a title": "\x1b]0;title\x07",
    "a colour of one byte": "\x9b31m",
    "another line": "\n2026-01-01 00:00:00,000 INFO all is well",
    "an odd line end": "\u20282026-01-01 00:00:00,000 INFO all is well",
    "a line once more": "\rerror: none",
    "a turned direction": "\u202egnp.exe",
    "nothing to see": "\u200b\u2066",
    "markup": "[bold red]x[/]",
    "a link": "[link=http://evil.example]x[/link]",
    "half a character": "\ud800",
}


def _conformance(text: str) -> None:
    item = Item(f"i{text}", "?", metadata={"domain": f"d{text}"})
    conformance_table.show([Conformance(item, "needs", (f"<{text}>",))])


SHOWN: dict[str, tuple[Callable[[str], object], int]] = {
    "items": (lambda text: run_actions._say_of_items([f"<{text}>"], [f"<{text}>"], f"<{text}>"), 3),
    "downloads": (
        lambda text: prefetch._say(
            {
                "files": 1,
                "cached_before": 0,
                "downloaded": 0,
                "bytes_downloaded": 0,
                "folder": "f",
                "failed": {f"http://h/{text}": f"<{text}>"},
            }
        ),
        2,
    ),
    "an error": (lambda text: program._fail(f"<{text}>"), 1),
    "a cell": (lambda text: table_console().print(events_table([Event("0-0", "error", "vm", 1, f"<{text}>")])), 0),
    "a line": (lambda text: table_console(markup=False).print(f"<{text}>", soft_wrap=True), 0),
    "a title": (lambda text: table_console().print(Text(f"<{text}>")), 0),
    "conformance": (_conformance, 0),
}
"""What prints a text, and as how many lines; 0: lines may be broken in it."""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(("show", "lines"), SHOWN.values(), ids=SHOWN)
def test_it_is_shown_as_text(
    capsys: pytest.CaptureFixture[str], text: str, show: Callable[[str], object], lines: int
) -> None:
    show(text)

    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert said.replace("\n", "").isprintable(), repr(said)
    assert not lines or said.count("\n") == lines
    assert not text.isprintable() or f"<{text}>" in said


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_json_is_the_same_and_steers_no_terminal(capsys: pytest.CaptureFixture[str], text: str) -> None:
    program.print_json({"name": f"ü{text}"})

    said = capsys.readouterr().out
    assert said.replace("\n", "").isprintable(), repr(said)
    assert "ü" in said
    assert json.loads(said) == {"name": f"ü{text}"}


@pytest.mark.parametrize("text", [*HOSTILE.values(), "|", "www.evil.example", "<b>", "`"])
def test_a_page_has_it_as_text(text: str) -> None:
    item = Item(f"i{text}", "?", metadata={"domain": f"d{text}"})

    page = conformance_table.as_page(
        [Conformance(item, "needs", (f"({text})",))], "tasks.json", "an image", "a command"
    )

    plain = conformance_table.as_page(
        [Conformance(Item("i", "?"), "needs", ("-",))], "tasks.json", "an image", "a command"
    )
    assert page.replace("\n", "").isprintable()
    assert page.count("\n") == plain.count("\n")
    assert re.sub(r"\\.", "", page).count("|") == plain.count("|")
    assert not re.search(r"www\.evil|(?<!\\)(\[link|://)", page)
    assert "<b>" not in page


@pytest.fixture(name="log")
def _log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A logger as a worker has it, and what it writes."""
    factory = logging.getLogRecordFactory()
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.Logger("of a worker")
    logger.addHandler(handler)
    yield logger, written
    logging.setLogRecordFactory(factory)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_log_has_a_line_for_each_message(log: tuple[logging.Logger, io.StringIO], text: str) -> None:
    logger, written = log
    keep_to_one_line()

    logger.warning("ending the recording  failed: %s", f"<{text}>")
    try:
        raise RuntimeError(f"<{text}>")
    except RuntimeError:
        logger.exception("it failed")

    said = written.getvalue()
    assert said.replace("\n", "").isprintable(), repr(said)
    assert said.splitlines()[1] == "ERROR it failed"
    assert "Traceback (most recent call last):\n" in said
    assert not text.isprintable() or said.startswith(f"WARNING ending the recording  failed: <{text}>\n")


def test_a_worker_logs_so(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    bootsteps.install(app)
    signals.after_setup_logger.send(sender=None, logger=logger, loglevel=logging.INFO)

    logger.warning("a\n\x1bb")

    assert written.getvalue() == "WARNING a \ufffdb\n"


def test_a_command_logs_so(log: tuple[logging.Logger, io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    logger, written = log
    command = typer.Typer()

    @command.command()
    def speak() -> None:
        logger.warning("a\n\x1bb")

    monkeypatch.setattr(sys, "argv", ["speak"])
    with pytest.raises(SystemExit):
        program.run(command)

    assert written.getvalue() == "WARNING a \ufffdb\n"
