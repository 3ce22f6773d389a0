"""Finds, activates, closes and measures windows."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from . import request_fields, x11
from .polling import wait_until
from .problems import not_found, too_late

blueprint = Blueprint("windows", __name__)

OPENING_SECONDS = 8.0
"""Tasks activate the window of a program that they launched a moment ago."""
ACTIVATION_SECONDS = 3.0
CLOSING_SECONDS = 1.0


def find(name: str, *, strict: bool = False, by_class: bool = False) -> list[x11.Window]:
    """Returns the windows with a name, oldest first: OSWorld's own tool, wmctrl, takes the first of several.

    Args:
        name: A part of the title, or of ``instance.class``, in upper or lower case.
        strict: The name must be the whole text, exactly.
        by_class: Look at the class instead of the title.
    """
    with x11.connected() as display:
        shown = x11.windows(display, by_age=True)

    def matches(window: x11.Window) -> bool:
        text = f"{window.instance}.{window.class_name}" if by_class else window.title
        return text == name if strict else name.lower() in text.lower()

    return [window for window in shown if matches(window)]


@blueprint.post("/setup/activate_window")
def activate_window() -> str:
    """Brings a window to the front."""
    window = _asked_window(OPENING_SECONDS, or_program=True)
    with x11.connected() as display:
        x11.ask_window_manager(display, window.id, "_NET_ACTIVE_WINDOW", x11.FROM_A_PAGER)
        if not wait_until(lambda: x11.active_window(display) == window.id, ACTIVATION_SECONDS):
            raise too_late(f"the window {window.title!r} did not come to the front within {ACTIVATION_SECONDS:g} s")
    return "Window activated successfully"


@blueprint.post("/setup/close_window")
def close_window() -> str:
    """Asks a window to close; it may still ask its user a question."""
    window = _asked_window()
    with x11.connected() as display:
        x11.ask_window_manager(display, window.id, "_NET_CLOSE_WINDOW", 0, x11.FROM_A_PAGER)
        wait_until(lambda: window.id not in {other.id for other in x11.windows(display)}, CLOSING_SECONDS)
    return "Window closed successfully"


@blueprint.post("/window_size")
def window_size() -> Response:
    """Returns the size of a program's topmost window, found by its class."""
    class_name = request_fields.form_path("app_class_name")
    with x11.connected() as display:
        for window in x11.windows(display)[::-1]:
            if class_name.lower() in (window.instance.lower(), window.class_name.lower()):
                width, height = x11.size_of(display, window.id)
                return jsonify(width=width, height=height)
    raise not_found(f"no window of class {class_name!r}")


def _asked_window(seconds: float = 0.0, *, or_program: bool = False) -> x11.Window:
    """Returns the window that the request names.

    Args:
        seconds: How long to wait for the window.
        or_program: If no title matches, match the class: a terminal's title names its folder, not the program.
    """
    values = request_fields.body()
    name = request_fields.text(values, "window_name")
    found: list[x11.Window] = []

    def look() -> bool:
        strict = bool(values.get("strict"))
        found[:] = find(name, strict=strict, by_class=bool(values.get("by_class")))
        if not found and or_program and not strict:
            found[:] = find(name, by_class=True)
        return bool(found)

    if not wait_until(look, seconds):
        raise not_found(f"{request.path}: there is no window {name!r}")
    return found[0]
