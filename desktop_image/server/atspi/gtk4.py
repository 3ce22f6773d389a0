"""Corrects errors of GTK 4 programs: which nodes are visible and enabled, their screen positions and names.

These programs report positions relative to their window, and mark only windows as "showing".
"""

from __future__ import annotations

from collections.abc import Mapping

from . import names
from .nodes import Box, Node, Program

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
    """Returns a name without its repetition: a button that gets its name from its label is called "7 7"."""
    half = name[: len(name) // 2]
    return half if half and name == f"{half} {half}" else name


def set_places(program: Program, windows: Mapping[tuple[int, str], Box]) -> None:
    """Moves all nodes by their window's position.

    Args:
        program: The program with the nodes.
        windows: Positions of windows on the screen, by process id and title.
    """
    for window in program.root.children:
        place = windows.get((program.pid, window.name))
        if place is not None and window.box is not None:
            # Positions start inside the border, which is equally wide on all sides.
            across, down = (place[2] - window.box[2]) // 2, (place[3] - window.box[3]) // 2
            _move(window, place[0] + across - window.box[0], place[1] + down - window.box[1])


def _move(window: Node, x: int, y: int) -> None:
    for node in window.walk():
        if node.box is not None:
            node.box = (node.box[0] + x, node.box[1] + y, node.box[2], node.box[3])
