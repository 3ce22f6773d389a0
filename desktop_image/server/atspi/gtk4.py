"""Corrects errors of GTK 4 programs: which nodes are visible and enabled, their screen positions and names.

These programs report positions relative to their window, and mark only main windows as "showing" and "active", no dialogs.
An open menu, or whatever else pops up, is a window of its own; they report it at the corner of what it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import names
from .nodes import Box, Node, Program, Windows

NO_END = 2**31 - 1
"""The end of any text. Elsewhere -1 means the same, but labels take it for the beginning."""

OF_WINDOW = 1
"""Kind of coordinates. If asked for the screen's, earlier releases return the window's, and later ones nothing."""


def is_gtk4(program: Program) -> bool:
    """Whether a program needs this correction."""
    return program.toolkit.lower() == "gtk" and program.version.startswith("4.")


def set_states(program: Program) -> None:
    """Marks nodes that are visible, with all parents up to a showing window, as showing; sensitive ones as enabled."""
    for node in program.root.walk():
        node.text_end = NO_END
        node.coordinates = OF_WINDOW
        node.name = _said_once(node.name)
    for window in program.root.children:
        if window.role in names.DIALOGS and window.states & names.VISIBLE:
            window.states |= names.SHOWING
        if not window.showing:
            continue
        stack = list(window.children)
        while stack:
            node = stack.pop()
            if node.states & names.VISIBLE:
                node.states |= names.SHOWING
                if node.states & names.SENSITIVE:
                    node.states |= names.ENABLED
                stack.extend(node.children)


def _said_once(name: str) -> str:
    """Returns a name without its repetition: a button that gets its name from its label is called "7 7", "_Cut Cut"."""
    said, blank, again = name[: len(name) // 2], name[len(name) // 2 :][:1], name[len(name) // 2 + 1 :]
    return again if said and blank == " " and again in (said, said.replace("_", "", 1)) else name


def set_places(program: Program, windows: Windows) -> None:
    """Moves all nodes by their window's position, and marks the active dialog.

    A window without a title is called after its program by others; the nodes of one that cannot be found have no position.
    """
    own = {title for title in windows.places if title[0] == program.pid}
    unnamed = own - {(program.pid, window.name) for window in program.root.children}
    for window in program.root.children:
        title = program.pid, window.name
        if title not in own and len(unnamed) == 1 and window.showing:
            (title,) = unnamed
        place = windows.places.get(title)
        if place is not None and window.box is not None:
            # Positions start inside the border, which is equally wide on all sides.
            across, down = (place[2] - window.box[2]) // 2, (place[3] - window.box[3]) // 2
            _move(window, place[0] + across, place[1] + down, window.box)
            _set_popups(window, windows.popups)
        elif window.role in names.DIALOGS:
            for node in window.walk():
                node.box = None
        if title == windows.active and window.role in names.DIALOGS:
            window.states |= names.ACTIVE


def _set_popups(window: Node, popups: Sequence[Box]) -> None:
    """Moves what pops up to the window that is as large."""
    free = list(popups)
    for node in window.walk():
        corner = node.parent.box[:2] if node.parent is not None and node.parent.box is not None else None
        if not node.showing or node.box is None or node.box[:2] != corner:
            continue
        if popup := next((one for one in free if one[2:] == node.box[2:]), None):
            free.remove(popup)
            _move(node, popup[0], popup[1], node.box)


def _move(top: Node, x: int, y: int, now: Box) -> None:
    """Moves a node, with all below it, from where it is now."""
    for node in top.walk():
        if node.box is not None:
            node.box = (node.box[0] + x - now[0], node.box[1] + y - now[1], node.box[2], node.box[3])
