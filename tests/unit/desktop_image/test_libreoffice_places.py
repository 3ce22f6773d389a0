"""LibreOffice tells where its cells are with or without its menu bar's height: either way they end up where they are seen."""

from __future__ import annotations

import pytest

from desktop_image.server.atspi import libreoffice, names
from desktop_image.server.atspi.nodes import Node, Program

GTK = {"toolkit": "gtk"}


def node(role: str, box: tuple[int, int, int, int], *children: Node, gtk: bool = False) -> Node:
    return Node("p", "/", names.ROLES.index(role), children=list(children), box=box, attributes=GTK if gtk else {})


def soffice(window: tuple[int, int, int, int], moved_by: int) -> tuple[Program, Node]:
    """A window of a sheet, what LibreOffice draws told with an offset."""
    left, top, width, height = window
    cell = node("table cell", (41, top + 134 + moved_by, 80, 17))
    pane = node("root pane", (left, top + 29 + moved_by, width, height - 54), cell)
    bar = node("menu bar", (left, top + 29, width, 25), node("menu", (left, top + 29, 40, 25), gtk=True), gtk=True)
    root = Node("p", "/", name="soffice", children=[node("frame", window, bar, pane, gtk=True)])
    return Program(root, {}, "gtk", "3"), cell


@pytest.mark.parametrize("window", [(0, 0, 1920, 1032), (300, 200, 900, 700)])
@pytest.mark.parametrize("moved_by", [0, 25])
def test_cells_are_where_they_are_seen(window: tuple[int, int, int, int], moved_by: int) -> None:
    program, cell = soffice(window, moved_by)

    libreoffice.set_places(program)

    assert cell.box == (41, window[1] + 159, 80, 17)


def test_menus_stay_where_gtk_has_them() -> None:
    program, _cell = soffice((0, 0, 1920, 1032), 0)

    libreoffice.set_places(program)

    frame = program.root.children[0]
    assert [one.box for one in frame.children[0].walk()] == [(0, 29, 1920, 25), (0, 29, 40, 25)]
