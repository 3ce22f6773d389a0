"""The X display: connections, windows and keys, through the window manager's properties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import Xlib.display
import Xlib.error
from Xlib import XK, X
from Xlib.ext import xtest
from Xlib.protocol import event

from .polling import wait_until
from .problems import Problem

FROM_A_PAGER = 2
ANSWER_SECONDS = 5.0
"""Longest wait for an answer of the window manager, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Window:
    """A top-level window."""

    id: int
    title: str
    instance: str
    class_name: str
    kind: str
    """normal, dialog, dock, desktop, splash, ..."""


@contextmanager
def connected() -> Iterator[Any]:
    """Opens a new connection: python-xlib's must not be shared by threads."""
    try:
        display = Xlib.display.Display()
    except (Xlib.error.DisplayError, OSError) as error:
        raise Problem("the display does not answer", 503) from error
    try:
        yield display
    except (Xlib.error.ConnectionClosedError, OSError) as error:
        raise Problem("the display has ended", 503) from error
    finally:
        display.close()


def windows(display: Any, *, by_age: bool = False) -> list[Window]:
    """Returns all top-level windows that the window manager knows: lowest first, or oldest first."""
    root = display.screen().root
    found = []
    for window_id in property_of(display, root, "_NET_CLIENT_LIST" if by_age else "_NET_CLIENT_LIST_STACKING") or []:
        try:
            found.append(_window(display, window_id))
        except Xlib.error.XError:
            continue
    return found


def normal_windows(display: Any) -> list[Window]:
    """Returns the windows that a user would call windows: no docks or desktop."""
    return [window for window in windows(display) if window.kind not in ("dock", "desktop")]


def _window(display: Any, window_id: int) -> Window:
    resource = display.create_resource_object("window", window_id)
    title = property_of(display, resource, "_NET_WM_NAME")
    if title is None:
        title = property_of(display, resource, "WM_NAME") or b""
    wm_class = resource.get_wm_class() or ("", "")
    kinds = property_of(display, resource, "_NET_WM_WINDOW_TYPE") or []
    kind = display.get_atom_name(kinds[0]).rpartition("_TYPE_")[2].lower() if len(kinds) else "normal"
    text = title.decode("utf-8", "replace") if isinstance(title, bytes) else str(title)
    return Window(window_id, text, wm_class[0], wm_class[1], kind)


def property_of(display: Any, window: Any, name: str) -> Any:
    """Returns a window's property, or None."""
    found = window.get_full_property(display.intern_atom(name), X.AnyPropertyType)
    return None if found is None else found.value


def ask_window_manager(display: Any, window_id: int, message: str, *data: int) -> None:
    """Sends the window manager a request about a window."""
    root = display.screen().root
    asked = event.ClientMessage(
        window=display.create_resource_object("window", window_id),
        client_type=display.intern_atom(message),
        data=(32, [*data, *[0] * (5 - len(data))]),
    )
    root.send_event(asked, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
    display.flush()


def press_first_key(display: Any) -> None:
    """Presses and releases Shift, and waits until the window manager has reacted.

    At the first key from a program, X reports that the keyboard has changed; the window manager then releases its keys and
    grabs them again. A key pressed in between, as in a first Ctrl+Alt+T, would do nothing.
    """
    shift = display.keysym_to_keycode(XK.XK_Shift_L)
    xtest.fake_input(display, X.KeyPress, shift)
    xtest.fake_input(display, X.KeyRelease, shift)
    display.sync()
    # The window manager answers in the order of the requests.
    window = display.screen().root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
    ask_window_manager(display, window.id, "_NET_REQUEST_FRAME_EXTENTS")
    wait_until(lambda: property_of(display, window, "_NET_FRAME_EXTENTS") is not None, ANSWER_SECONDS)
    window.destroy()
    display.sync()


def active_window(display: Any) -> int:
    """Returns the id of the window that has the focus; 0 when no window has it."""
    found = property_of(display, display.screen().root, "_NET_ACTIVE_WINDOW")
    return int(found[0]) if found is not None and len(found) else 0


def work_area(display: Any) -> tuple[int, int, int, int] | None:
    """Returns the screen without panels: x, y, width, height; None when the window manager does not report it."""
    found = property_of(display, display.screen().root, "_NET_WORKAREA")
    return (
        (int(found[0]), int(found[1]), int(found[2]), int(found[3])) if found is not None and len(found) > 3 else None
    )


def size_of(display: Any, window_id: int) -> tuple[int, int]:
    """Returns a window's width and height."""
    geometry = display.create_resource_object("window", window_id).get_geometry()
    return int(geometry.width), int(geometry.height)


def content_places() -> dict[tuple[int, str], tuple[int, int, int, int]]:
    """Returns windows' positions, without shadows, by process id and title: x, y, width, height."""
    places = {}
    with connected() as display:
        for window in normal_windows(display):
            resource = display.create_resource_object("window", window.id)
            try:
                pid = _process_of(display, resource)
                shadow = property_of(display, resource, "_GTK_FRAME_EXTENTS")
                width, height = size_of(display, window.id)
                corner = display.screen().root.translate_coords(resource, 0, 0)
            except Xlib.error.XError:
                continue
            left, right, top, bottom = shadow if shadow is not None and len(shadow) == 4 else (0, 0, 0, 0)
            if pid:
                size = (int(width - left - right), int(height - top - bottom))
                places[pid, window.title] = (int(corner.x + left), int(corner.y + top), *size)
    return places


def active_title(display: Any) -> tuple[int, str] | None:
    """Returns the active window's process id and title; None when no window has the focus, or it does not say."""
    try:
        window = _window(display, active_window(display))
        pid = _process_of(display, display.create_resource_object("window", window.id))
    except Xlib.error.XError:
        return None
    return (pid, window.title) if pid else None


def _process_of(display: Any, window: Any) -> int:
    """Returns the id of the process that says that a window is its own; 0 when none does."""
    pid = property_of(display, window, "_NET_WM_PID")
    return int(pid[0]) if pid is not None and len(pid) else 0


def popup_places(display: Any) -> list[tuple[int, int, int, int]]:
    """Returns the positions of windows that the window manager ignores, such as open menus: x, y, width, height."""
    places = []
    for window in display.screen().root.query_tree().children:
        try:
            has = window.get_attributes()
            geometry = window.get_geometry()
        except Xlib.error.XError:
            continue
        if has.override_redirect and has.map_state == X.IsViewable:
            places.append((int(geometry.x), int(geometry.y), int(geometry.width), int(geometry.height)))
    return places
