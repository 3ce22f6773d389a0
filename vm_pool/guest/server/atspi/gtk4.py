"""Sets right what programs made with GTK 4 leave out: what is in sight, what is enabled, and where on the screen it is.

They tell positions in their own window, and call nothing but windows "showing".
"""

from __future__ import annotations

from collections.abc import Mapping

from . import names
from .nodes import Node, Program


def is_gtk4(program: Program) -> bool:
    """Whether a program needs this."""
    return program.toolkit.lower() == "gtk" and program.version.startswith("4.")


def set_states(program: Program) -> None:
    """What is visible all the way up to a window in sight is showing; what is sensitive is enabled."""
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


def set_places(program: Program, windows: Mapping[tuple[int, str], tuple[int, int]]) -> None:
    """Moves everything by where its window is.

    Args:
        program: Whose nodes.
        windows: By process id and title, where on the screen a window's content begins.
    """
    for window in program.root.children:
        place = windows.get((program.pid, window.name))
        if place is not None:
            _move(window, *place)


def _move(window: Node, x: int, y: int) -> None:
    for node in window.walk():
        if node.box is not None:
            node.box = (node.box[0] + x, node.box[1] + y, node.box[2], node.box[3])
