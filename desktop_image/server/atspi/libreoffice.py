"""Corrects LibreOffice's positions: for what it draws itself, they mostly ignore the height of the menu bar.

Positions of what GTK draws, including the menu bar, are right. A second, invisible menu bar is marked as hidden. After
a click into a document, LibreOffice may report the right positions: then its content ends where its window does.
"""

from __future__ import annotations

from . import names
from .nodes import Node, Program

PROGRAM = "soffice"
ROOT_PANE = names.ROLES.index("root pane")


def is_libreoffice(program: Program) -> bool:
    """Whether a program needs this correction."""
    return program.root.name == PROGRAM and program.toolkit.lower() == "gtk"


def set_places(program: Program) -> None:
    """Moves what LibreOffice draws itself down by the height of the menu bar above, unless it is in place already."""
    for window in program.root.children:
        bars = [node for node in window.walk() if node.role == names.MENU_BAR and node.box]
        heights = [bar.box[3] for bar in bars if bar.box and _is_gtk(bar)]
        within = {inner for bar in bars if _is_gtk(bar) for inner in bar.walk()}
        if heights and not _is_in_place(window, heights[0]):
            for node in window.walk():
                if node.box and node not in within and not _is_gtk(node):
                    node.box = (node.box[0], node.box[1] + heights[0], node.box[2], node.box[3])
        for unseen in (inner for bar in bars if bar.box and not bar.box[3] for inner in bar.walk()):
            unseen.states &= ~names.SHOWING


def _is_in_place(window: Node, menu_height: int) -> bool:
    """Whether the content ends with the window; otherwise it ends higher by the height of the menu bar."""
    panes = [node.box for node in window.walk() if node.role == ROOT_PANE and node.box and not _is_gtk(node)]
    if not panes or window.box is None:
        return False
    below = window.box[1] + window.box[3] - (panes[0][1] + panes[0][3])
    return below < menu_height / 2


def _is_gtk(node: Node) -> bool:
    return node.attributes.get("toolkit") == "gtk"
