"""The accessibility tree of a desktop, read from desktop-env's XML and written as indented lines.

One line for each element that is shown and is named, described or interactive: ``[role] name - description (states)``,
indented by two spaces for each level. Left out are containers without a name, and what cannot be seen: entries of
closed menus, and what the active window covers. Spreadsheet cells are written row by row, in the space that everything
else leaves, with all spaces that are in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from lxml import etree

from rollout_tasks.environments.osworld import spreadsheet_text
from rollout_tasks.environments.osworld.visibility import ActiveWindow, Box, centre_of, on_screen, visible_part

MAX_CHARACTERS = 40_000
"""A longer text is cut, whatever it contains."""
SHEET_CHARACTERS = 7_900
"""Spreadsheet cells end where the whole has this many characters; they always get `spreadsheet_text.LEAST_CONTENTS`."""
MAX_DESCRIPTION = 2_000
"""Characters of one element's text; a long document would leave no space for anything else."""
LONGEST_TREE = 16 << 20
"""Characters of XML; the largest pages in a browser take two million."""
DEEPEST = 250
"""Levels of elements; deeper ones are left out."""
_NAMESPACES = "https://accessibility.{system}.example.org/ns/{part}"
_NUMBERS = re.compile(r"-?\d+")
_INTERACTIVE = """
    push-button toggle-button check-box radio-button menu menu-item check-menu-item radio-menu-item entry text
    password-text combo-box list-item link page-tab slider spin-button tree-item table-cell icon terminal
    table-column-header table-row-header toggle-switch push-button-menu button checkbox hyperlink tabitem edit
"""
INTERACTIVE = frozenset(_INTERACTIVE.split())
"""Roles of what can be clicked or typed into, as Linux and Windows call them."""
_WINDOWS = frozenset({"frame", "window", "dialog", "alert", "file-chooser", "color-chooser", "font-chooser", "message"})
_SAID = (
    ("on", ("checked", "pressed")),
    ("selected", ("selected",)),
    ("focused", ("focused",)),
    ("open", ("expanded",)),
)
"""What a line says about an element, and the states that mean it."""
_ALIVE = ("enabled", "sensitive", "editable")
"""An element that can be acted on has one of these states; no toolkit has them all."""
_SHEET = "document-spreadsheet"
_ENTRIES = frozenset({"menu-item", "check-menu-item", "radio-menu-item"})
"""Some toolkits report these as shown though their menu is closed; they have no place then."""
_ABOVE_ALL = frozenset({"combo", "dropdown-menu", "notification", "popup-menu", "tooltip"})
"""Kinds of windows that are above the active one."""
_CONTENT = "panel"
"""What drops down from a tool bar of LibreOffice: below its button in the tree, with the name of the window that it is in."""


@dataclass(frozen=True, slots=True)
class Element:
    """One line of the tree."""

    depth: int
    role: str
    name: str
    description: str
    box: Box | None
    """Left, top, width, height in screen pixels of its visible part; None if it has no place."""
    states: tuple[str, ...] = ()
    """``on``, ``selected``, ``focused``, ``open``, ``disabled``."""
    in_sheet: bool = False
    """Whether it is inside a spreadsheet; tables of texts have cells of the same names."""

    @property
    def label(self) -> str:
        """``[role] name - description (states)``."""
        said = " - ".join(part for part in (self.name, self.description) if part)
        label = f"[{self.role}] {said}" if said else f"[{self.role}]"
        return f"{label} ({', '.join(self.states)})" if self.states else label

    @property
    def centre(self) -> tuple[int, int] | None:
        """Where to click it."""
        return None if self.box is None else centre_of(self.box)

    @property
    def is_sheet_cell(self) -> bool:
        """Whether it is a spreadsheet's cell, of which a window has hundreds."""
        return (
            self.in_sheet
            and self.role == "table-cell"
            and self.box is not None
            and spreadsheet_text.is_cell_name(self.name)
        )


def elements(xml: str, *, system: str = "ubuntu", screen: tuple[int, int] | None = None) -> list[Element]:
    """Returns what can be seen on the screen, in the tree's order.

    Args:
        xml: As the guest's server gives it.
        system: The word in its namespaces: ``ubuntu`` or ``windows``.
        screen: Width and height of the screen in pixels, if known.

    Raises:
        ValueError: It is not XML.
    """
    root = parsed(xml)
    state, component, attributes = (
        "{" + _NAMESPACES.format(system=system, part=part) + "}" for part in ("state", "component", "attributes")
    )
    shown = "visible" if system == "windows" else "showing"
    words = _Words(state, f"{state}{shown}", f"{state}visible", component, attributes)
    active = _active_window(root, words)
    return list(_walk(root, 0, words, screen, None, active, DEEPEST))


def parsed(xml: str) -> Any:
    """Returns the tree's root; the parser reads nothing outside the text.

    Raises:
        ValueError: It is not XML, or too long.
    """
    if len(xml) > LONGEST_TREE:
        raise ValueError(f"the accessibility tree has {len(xml)} characters, more than {LONGEST_TREE}")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True, recover=True)
    try:
        root = etree.fromstring(xml.encode("utf-8", "surrogatepass"), parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"the accessibility tree is not XML: {error}") from error
    if root is None:
        raise ValueError("the accessibility tree is empty")
    return root


def lines(found: Sequence[Element], *, with_places: bool = False) -> str:
    """Returns the tree as text, cut at `MAX_CHARACTERS` with a note.

    Args:
        found: What `elements` returned.
        with_places: Adds where to click each element, for agents that see no picture.
    """
    others = sum(len(_line(one, with_places)) + 1 for one in found if not one.is_sheet_cell)
    room = SHEET_CHARACTERS - others
    text: list[str] = []
    for cells, group in groupby(found, key=lambda element: element.is_sheet_cell):
        if cells:
            some = list(group)
            indent = "  " * some[0].depth
            rows = spreadsheet_text.lines([_cell(one) for one in some], room, len(indent), with_places=with_places)
            text += [indent + row for row in rows]
            room -= sum(len(indent) + len(row) + 1 for row in rows)
        else:
            text += [_line(one, with_places) for one in group]
    return "\n".join(_cut(text))


def _line(element: Element, with_places: bool) -> str:
    place = f" @ {element.centre}" if with_places and element.centre else ""
    return "  " * element.depth + element.label + place


def _cell(element: Element) -> spreadsheet_text.SheetCell:
    assert element.centre is not None  # `is_sheet_cell` requires a box  # noqa: S101
    return spreadsheet_text.SheetCell(element.name, element.description, element.centre, "focused" in element.states)


def _cut(text: Sequence[str]) -> list[str]:
    room = MAX_CHARACTERS
    for number, line in enumerate(text):
        room -= len(line) + 1
        if room < 0:
            return [*text[:number], f"[... cut after {MAX_CHARACTERS} characters: {len(text) - number} more elements]"]
    return list(text)


@dataclass(frozen=True, slots=True)
class _Words:
    """Names of attributes, with their namespaces."""

    states: str
    shown: str
    visible: str
    component: str
    attributes: str


def _active_window(root: Any, words: _Words) -> ActiveWindow | None:
    """Returns the window above the others; None if the desktop itself is active, or nothing."""
    for node in root.iter():
        if isinstance(node.tag, str) and etree.QName(node).localname in _WINDOWS:
            box = _box(node, words.component)
            if box and node.get(f"{words.states}active") == "true" and node.get(words.shown) == "true":
                if node.get(f"{words.attributes}window-type") == "desktop":
                    continue
                return ActiveWindow(node, box)
    return None


def _walk(
    node: Any,
    depth: int,
    words: _Words,
    screen: tuple[int, int] | None,
    inside: Any,
    active: ActiveWindow | None,
    levels: int,
    in_sheet: bool = False,
) -> Iterator[Element]:
    """Yields a node and what is below it, but nothing below a node that is neither shown nor visible.

    Args:
        node: The node.
        depth: How many of the nodes above it have a line.
        words: Names of attributes.
        screen: The screen's size, if known.
        inside: The outermost window that contains it.
        active: The window above the others.
        levels: How many levels below it are read.
        in_sheet: Whether it is inside a spreadsheet.
    """
    if not isinstance(node.tag, str):
        return
    has_states = any(name.startswith(words.states) for name in node.attrib)
    shown = not has_states or node.get(words.shown) == "true"
    if not shown and node.get(words.visible) != "true":
        return
    role = etree.QName(node).localname
    if role in _WINDOWS:
        inside = node if inside is None else inside
        above = node.get(f"{words.attributes}window-type") in _ABOVE_ALL
        active = None if active is not None and (above or node is active.node) else active
    name = _one_line(node.get("name"))
    if active is not None and role == _CONTENT and _is_content(node, name, active, words):
        active = None
    spaced = in_sheet and role == "table-cell"
    description = _one_line(node.get("description") or node.get("note") or node.text, spaced=spaced)
    below = depth
    if shown and (name or description or role in INTERACTIVE):
        box = _box(node, words.component)
        nowhere = box is None and (role in _ENTRIES or not (name or description))
        seen = box
        if box is not None:
            seen = on_screen(box, screen)
        if seen is not None and active is not None and inside is not None and role not in _WINDOWS:
            seen = visible_part(seen, active)
        if not nowhere and (seen is not None or box is None):
            said = "" if description == name else description
            states = _states(node, role, words) if has_states else ()
            yield Element(depth, role, name, said, seen, states, in_sheet)
            below = depth + 1
    for child in node if levels else ():
        yield from _walk(child, below, words, screen, inside, active, levels - 1, in_sheet or role == _SHEET)


def _is_content(node: Any, name: str, active: ActiveWindow, words: _Words) -> bool:
    """Whether a node is what the active window shows, though it is in the tree below another."""
    box = _box(node, words.component)
    if box is None or not name or name != _one_line(active.node.get("name")):
        return False
    left, top, width, height = active.box
    return left <= box[0] and top <= box[1] and box[0] + box[2] <= left + width and box[1] + box[3] <= top + height


def _states(node: Any, role: str, words: _Words) -> tuple[str, ...]:
    def has(state: str) -> bool:
        return bool(node.get(f"{words.states}{state}") == "true")

    if role not in INTERACTIVE:
        return ()
    said = [word for word, states in _SAID if any(map(has, states))]
    return tuple(said) if any(map(has, _ALIVE)) else (*said, "disabled")


def _box(node: Any, component: str) -> Box | None:
    place = _NUMBERS.findall(node.get(f"{component}screencoord") or "")
    size = _NUMBERS.findall(node.get(f"{component}size") or "")
    if len(place) != 2 or len(size) != 2:
        return None
    left, top, width, height = int(place[0]), int(place[1]), int(size[0]), int(size[1])
    return (left, top, width, height) if width > 0 and height > 0 else None


def _one_line(text: str | None, *, spaced: bool = False) -> str:
    """Returns a text without line breaks; with each of its spaces, or one between words."""
    text = (text or "").replace("\ufffc", " ")
    if text.isspace() and ("\n" in text or not spaced):
        return ""
    joined = re.sub(r"\s", " ", text) if spaced else " ".join(text.split())
    return joined if len(joined) <= MAX_DESCRIPTION else joined[:MAX_DESCRIPTION] + "..."
