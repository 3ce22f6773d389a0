"""Returns the accessibility tree of all programs as XML, and the text in the terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from flask import Blueprint, Response, current_app, jsonify

from . import desktop_icons, processes, x11
from .atspi import details, markup, names, reader
from .atspi.bus import Bus, BusError
from .atspi.nodes import Node, Windows
from .problems import Problem

blueprint = Blueprint("accessibility", __name__)

TREE_SECONDS = 20.0
TERMINAL_SECONDS = 5.0
TERMINAL_PROGRAM = "gnome-terminal-server"

Found = TypeVar("Found")

_one_at_a_time = threading.Lock()
_bus: Bus | None = None


@blueprint.get("/accessibility")
def tree() -> Response:
    """Returns the tree of everything on the screen: ``{"AT": xml}``."""
    width, height = current_app.config["SCREEN"]
    deadline = time.monotonic() + TREE_SECONDS
    screen = (0, 0, width, height)
    programs = _with_bus(lambda bus: reader.read_desktop(bus, screen, _windows, deadline), deadline)
    with x11.connected() as display:
        area = x11.work_area(display)
    desktop_icons.add(programs, Path.home(), area or screen)
    return jsonify(AT=markup.render(programs))


def _windows() -> Windows:
    places = x11.content_places()
    with x11.connected() as display:
        return Windows(places, x11.popup_places(display), x11.active_title(display))


@blueprint.get("/terminal")
def terminal() -> Response:
    """Returns the text of the active window's focused terminal; null when no such window is active."""
    deadline = time.monotonic() + TERMINAL_SECONDS
    return jsonify(output=_with_bus(lambda bus: _terminal_text(bus, deadline), deadline), status="success")


def _terminal_text(bus: Bus, deadline: float) -> str | None:
    terminals: list[Node] = []
    for program in reader.read_programs(bus, deadline):
        if program.root.name == TERMINAL_PROGRAM:
            reader.complete(bus, program, (0, 0, 0, 0), deadline)
            active = [window for window in program.root.children if window.states & names.ACTIVE]
            inside = [node for window in active for node in window.walk() if node.role == names.TERMINAL]
            terminals += [node for node in inside if node.states & names.FOCUSED]
    details.read_details(bus, terminals[:1], deadline)
    return terminals[0].text.rstrip() if terminals else None


def _with_bus(ask: Callable[[Bus], Found], deadline: float) -> Found:
    """Asks over one lasting connection: programs drop their caches when the last client disconnects."""
    global _bus
    if not _one_at_a_time.acquire(timeout=max(deadline - time.monotonic(), 0)):
        raise Problem("the accessibility is still being read for someone else", 503)
    try:
        for last_try in (False, True):
            try:
                if _bus is None:
                    _bus = Bus(_address())
                    reader.introduce(_bus, deadline)
                _bus.silent.clear()
                return ask(_bus)
            except BusError as error:
                if _bus is not None:
                    _bus.close()
                _bus = None
                if last_try:
                    raise Problem(f"the programs' accessibility cannot be read: {error}", 503) from error
        raise AssertionError
    finally:
        _one_at_a_time.release()


def _address() -> str:
    """Returns the address of the accessibility bus, from the session's bus."""
    asking = (
        *("gdbus", "call", "--session", "--timeout", "5", "--dest", "org.a11y.Bus", "--object-path", "/org/a11y/bus"),
        *("--method", "org.a11y.Bus.GetAddress"),
    )
    done = processes.run(asking, 6)
    if done.returncode:
        raise BusError(f"nobody knows where its bus is: {done.error.strip()}")
    return done.output.strip().removeprefix("('").removesuffix("',)")
