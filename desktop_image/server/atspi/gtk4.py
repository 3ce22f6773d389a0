"""Sets right what programs made with GTK 4 get wrong: what is in sight and enabled, where on the screen it is, its name.

They tell positions in their own window, and call nothing but windows "showing".
"""

from __future__ import annotations

from collections.abc import Mapping

from . import names
from .nodes import Box, Node, Program

NO_END = 2**31 - 1
"""The end of any text. Labels take -1, which means the same elsewhere, for its beginning."""

OF_WINDOW = 1
"""Kind of coordinates. Asked for the screen's, earlier releases tell the window's, too, and later ones nothing."""


def is_gtk4(program: Program) -> bool:
    """Whether a program needs this."""
    return program.toolkit.lower() == "gtk" and program.version.startswith("4.")


def set_states(program: Program) -> None:
    """What is visible all the way up to a window in sight is showing; what is sensitive is enabled."""
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
    """A name without its repetition: a button whose label names it is called "7 7"."""
    half = name[: len(name) // 2]
    return half if half and name == f"{half} {half}" else name


def set_places(program: Program, windows: Mapping[tuple[int, str], Box]) -> None:
    """Moves everything by where its window is.

    Args:
        program: Whose nodes.
        windows: By process id and title, where on the screen a window is.
    """
    for window in program.root.children:
        place = windows.get((program.pid, window.name))
        if place is not None and window.box is not None:
            # Positions are told from inside the border, which is as wide on all sides.
            across, down = (place[2] - window.box[2]) // 2, (place[3] - window.box[3]) // 2
            _move(window, place[0] + across - window.box[0], place[1] + down - window.box[1])


def _move(window: Node, x: int, y: int) -> None:
    for node in window.walk():
        if node.box is not None:
            node.box = (node.box[0] + x, node.box[1] + y, node.box[2], node.box[3])
