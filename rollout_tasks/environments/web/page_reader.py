"""Reads downloaded pages in cells: each in one of its own, with limits on memory and time, so that no page affects another."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Timer
from typing import Any

from rollout_tasks.cells.cell import CallFailed, Cell, CellEnded, Handled, Handlers
from rollout_tasks.cells.filesystem import CellsUnavailable, cell_filesystem
from rollout_tasks.cells.isolation import CellLimits
from rollout_tasks.cells.template_process import shared_template
from rollout_tasks.environments.web.refusal import Refused
from rollout_tasks.unicode_text import printable, storable

CELL_MODULE = "rollout_tasks.environments.web.page_cell"
PACKAGES = ("protego", "pypdf", "trafilatura")
LIMITS = CellLimits(
    memory_bytes=768 << 20,
    folder_bytes=16 << 20,
    folder_files=100,
    processes=16,
    cpu_seconds=30,
    open_files=64,
    sockets=8,
    connections=1,
)
LONGEST_TEXT, LONGEST_TITLE = 500_000, 300
"""Characters that a cell may answer."""
_TOO_MUCH = "reading it takes more time or memory than a page may"
_TOO_LATE = "its time is over"


@dataclass(frozen=True, slots=True)
class PageText:
    """What a page says."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RobotsVerdict:
    """What a site's robots.txt says of a page."""

    allowed: bool
    delay: float
    """Seconds that it wants between two requests; 0 if it does not say."""


def check_available() -> None:
    """Checks that pages can be read here.

    Raises:
        RuntimeError: A package is missing, or cells cannot be made; the message says what to do.
    """
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise RuntimeError(
            f"reading pages needs packages that are not installed here: uv pip install {' '.join(missing)}"
        )
    try:
        cell_filesystem()
    except CellsUnavailable as error:
        raise RuntimeError(f"pages cannot be kept apart from the worker: {error}") from error


def preload() -> None:
    """Begins to import what cells need, in the process that they are forked from."""
    shared_template(CELL_MODULE)


def wait_until_imported() -> None:
    """Waits until cells can be made at once, so that no page's time is spent on that.

    Raises:
        CellsUnavailable: They cannot be made, or not in time.
    """
    shared_template(CELL_MODULE).wait_until_ready()


def read_page(body: bytes, media_type: str, charset: str, url: str, seconds: float) -> PageText:
    """Returns the text of a page, a PDF file or a text file.

    Args:
        body: The file.
        media_type: What its server says it is; may be wrong or empty.
        charset: The charset that its server names; may be wrong or empty.
        url: Its address.
        seconds: How long it may take.

    Raises:
        Refused: It cannot be read, or exceeds a limit.
    """
    match _called("page", body, seconds, media_type=media_type, charset=charset, url=url):
        case {"title": str(title), "text": str(text)} if text:
            return PageText(
                " ".join(cleaned(title).split())[:LONGEST_TITLE],
                cleaned(text),
            )
    raise Refused(_TOO_MUCH)


def read_robots(rules: bytes, agent: str, url: str, seconds: float) -> RobotsVerdict:
    """Returns what a robots.txt says of a page.

    Args:
        rules: The robots.txt.
        agent: The name that it is asked for.
        url: The page.
        seconds: How long it may take.

    Raises:
        Refused: It cannot be read, or exceeds a limit.
    """
    match _called("robots", rules, seconds, agent=agent, url=url):
        case {"allowed": bool(allowed), "delay": int() | float() as delay} if math.isfinite(delay):
            return RobotsVerdict(allowed, max(0.0, float(delay)))
    raise Refused("its site's robots.txt cannot be read")


def _called(method: str, body: bytes, seconds: float, **arguments: Any) -> Any:
    """Calls a method in a new cell, which ends with the call; returns its untrusted answer."""

    def send_body() -> Handled:
        return None, [body]

    if seconds <= 0:
        raise Refused(_TOO_LATE)
    cell = Cell(shared_template(CELL_MODULE), ports={}, dial=_nowhere, limits=LIMITS)
    alarm = Timer(seconds, cell.abort, [_TOO_LATE])
    alarm.daemon = True
    try:
        alarm.start()
        return cell.call(method, Handlers({"body": send_body}, _NOTHING_TOLD), **arguments)
    except CallFailed as failure:
        known = failure.kind == "Unreadable"
        raise Refused(
            str(failure) if known else _TOO_MUCH if failure.kind == "MemoryError" else "it is broken"
        ) from failure
    except CellEnded as ended:
        raise Refused(_TOO_MUCH) from ended
    finally:
        alarm.cancel()
        cell.close()


_NOTHING_TOLD: Mapping[str, Any] = {}


def _nowhere(name: str) -> socket.socket:
    raise ConnectionRefusedError(name)


def cleaned(text: str) -> str:
    """Returns a page's text as it may be kept and shown; of a text that was cleaned, the same."""
    return printable(storable(text))[:LONGEST_TEXT]
