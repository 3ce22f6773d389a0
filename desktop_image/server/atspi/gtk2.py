"""Corrects an error of GTK 2 programs: they do not mark the items of an open menu as "showing".

An open menu is a separate window, which the window manager ignores. Items report a position even after their menu has
closed, so only the items that lie in such a window now are visible.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import details, names
from .bus import Bus
from .nodes import Box, Node, Program

BORDER = 8
"""Widest border of a menu, in pixels."""

ARROW = 20
"""Height of the arrow, with border, at either end of a menu that is longer than the screen, in pixels."""


def is_gtk2(program: Program) -> bool:
    """Whether a program needs this correction."""
    return program.toolkit == "GAIL" and program.version.startswith("2.")


def show_open_menus(bus: Bus, program: Program, popups: Sequence[Box], deadline: float) -> bool:
    """Marks the items of open menus as showing; returns whether any were not marked yet.

    Args:
        bus: The accessibility bus.
        program: The program with the menus.
        popups: Positions of the windows that the window manager ignores.
        deadline: When to stop asking, by the monotonic clock.
    """
    if not popups:
        return False
    menus = {node: _visible_items(node) for node in program.root.walk() if node.role == names.MENU and _in_reach(node)}
    menus = {menu: items for menu, items in menus.items() if items}
    details.read_places(bus, [item for items in menus.values() for item in (items[0], items[-1])], deadline)
    opened = {menu: _popup_of(items, popups) for menu, items in menus.items()}
    details.read_places(bus, [item for menu, popup in opened.items() if popup for item in menus[menu]], deadline)
    shown = [item for menu, popup in opened.items() if popup for item in menus[menu] if _lies_in(item, popup)]
    for item in shown:
        item.states |= names.SHOWING
    return bool(shown)


def _in_reach(menu: Node) -> bool:
    """Whether a menu's title, or the parent from which it opens, is visible."""
    return menu.showing or (menu.parent is not None and menu.parent.showing)


def _visible_items(menu: Node) -> list[Node]:
    """Returns the items that an open menu shows; empty when they are showing already."""
    items = [item for item in menu.children if item.states & names.VISIBLE]
    return [] if any(item.showing for item in items) else items


def _popup_of(items: Sequence[Node], popups: Sequence[Box]) -> Box | None:
    """Returns the items' part of the window that they fill; those of a long menu go on above or below it."""
    first, last = items[0].box, items[-1].box
    if first is None or last is None:
        return None
    height = last[1] + last[3] - first[1]
    for popup in popups:
        left, right = first[0] - popup[0], popup[0] + popup[2] - (last[0] + last[2])
        above, below = first[1] - popup[1], popup[1] + popup[3] - (last[1] + last[3])
        ends = BORDER if height <= popup[3] else ARROW
        if 0 <= left <= BORDER and 0 <= right <= BORDER and above <= ends and below <= ends:
            return popup if height <= popup[3] else (popup[0], popup[1] + ARROW, popup[2], popup[3] - 2 * ARROW)
    return None


def _lies_in(item: Node, place: Box) -> bool:
    """Whether the item's middle is inside."""
    return item.box is not None and place[1] <= item.box[1] + item.box[3] // 2 < place[1] + place[3]
