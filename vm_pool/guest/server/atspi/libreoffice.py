"""Sets right where LibreOffice says its things are: what it draws itself, it tells as if its menu bar had no height.

What GTK draws for it, the menu bar among them, is where it says. A second menu bar that nobody sees is called hidden.
"""

from __future__ import annotations

from . import names
from .nodes import Node, Program

PROGRAM = "soffice"


def is_libreoffice(program: Program) -> bool:
    """Whether a program needs this."""
    return program.root.name == PROGRAM and program.toolkit.lower() == "gtk"


def set_places(program: Program) -> None:
    """Moves what LibreOffice draws itself down by the height of the menu bar above it."""
    for window in program.root.children:
        bars = [node for node in window.walk() if node.role == names.MENU_BAR and node.box]
        heights = [bar.box[3] for bar in bars if bar.box and _is_gtk(bar)]
        within = {inner for bar in bars if _is_gtk(bar) for inner in bar.walk()}
        for node in window.walk():
            if node.box and heights and node not in within and not _is_gtk(node):
                node.box = (node.box[0], node.box[1] + heights[0], node.box[2], node.box[3])
        for unseen in (inner for bar in bars if bar.box and not bar.box[3] for inner in bar.walk()):
            unseen.states &= ~names.SHOWING


def _is_gtk(node: Node) -> bool:
    return node.attributes.get("toolkit") == "gtk"
