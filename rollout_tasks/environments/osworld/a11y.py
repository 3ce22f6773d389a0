"""The accessibility tree: read from what desktop-env brings, written as indented lines.

One line for each element that is shown and says something: ``[role] name - description``, two spaces for each level. What is
not on the screen, as the entries of closed menus, is left out; so are containers without a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lxml import etree

MAX_CHARACTERS = 40_000
MAX_DESCRIPTION = 2_000
"""Characters of one element's text; a long document would drown everything else."""
_NAMESPACES = "https://accessibility.{system}.example.org/ns/{part}"
_NUMBERS = re.compile(r"-?\d+")
_INTERACTIVE = """
    push-button toggle-button check-box radio-button menu menu-item check-menu-item radio-menu-item entry text
    password-text combo-box list-item link page-tab slider spin-button tree-item table-cell icon terminal
    table-column-header table-row-header toggle-switch push-button-menu button checkbox hyperlink tabitem edit
"""
INTERACTIVE = frozenset(_INTERACTIVE.split())
"""Roles of what can be clicked or typed into, as Linux and Windows call them."""


@dataclass(frozen=True, slots=True)
class Element:
    """One line of the tree."""

    depth: int
    role: str
    name: str
    description: str
    box: tuple[int, int, int, int] | None
    """Left, top, width, height in screen pixels; None where it has no place."""

    @property
    def label(self) -> str:
        """``[role] name - description``."""
        said = " - ".join(part for part in (self.name, self.description) if part)
        return f"[{self.role}] {said}" if said else f"[{self.role}]"

    @property
    def centre(self) -> tuple[int, int] | None:
        """Where to click it."""
        if self.box is None:
            return None
        left, top, width, height = self.box
        return left + width // 2, top + height // 2


def elements(xml: str, *, system: str = "ubuntu") -> list[Element]:
    """What is on the screen, in the tree's order.

    Args:
        xml: As the guest's server gives it.
        system: The word in its namespaces: ``ubuntu`` or ``windows``.

    Raises:
        ValueError: It is no XML.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True, recover=True)
    try:
        root = etree.fromstring(xml.encode("utf-8", "surrogatepass"), parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"the accessibility tree is no XML: {error}") from error
    if root is None:
        raise ValueError("the accessibility tree is empty")
    state, component = ("{" + _NAMESPACES.format(system=system, part=part) + "}" for part in ("state", "component"))
    shown = "visible" if system == "windows" else "showing"
    return list(_walk(root, 0, _Words(state, f"{state}{shown}", f"{state}visible", component)))


def lines(found: list[Element], *, with_places: bool = False) -> str:
    """The tree as text, cut at `MAX_CHARACTERS` with a note.

    Args:
        found: What `elements` returned.
        with_places: Adds where to click each element: for agents that see no picture.
    """
    written: list[str] = []
    room = MAX_CHARACTERS
    for number, element in enumerate(found):
        place = f" @ {element.centre}" if with_places and element.centre else ""
        line = "  " * element.depth + element.label + place
        room -= len(line) + 1
        if room < 0:
            written.append(f"[... cut after {MAX_CHARACTERS} characters: {len(found) - number} more elements]")
            break
        written.append(line)
    return "\n".join(written)


@dataclass(frozen=True, slots=True)
class _Words:
    """Attributes' names, namespaces included."""

    states: str
    shown: str
    visible: str
    component: str


def _walk(node: Any, depth: int, words: _Words) -> Iterator[Element]:
    """A node and what is below it; nothing below what is neither shown nor could be."""
    if not isinstance(node.tag, str):
        return
    has_states = any(name.startswith(words.states) for name in node.attrib)
    shown = not has_states or node.get(words.shown) == "true"
    if not shown and node.get(words.visible) != "true":
        return
    role = etree.QName(node).localname
    name = _one_line(node.get("name"))
    description = _one_line(node.get("description") or node.text)
    below = depth
    if shown and (name or description or role in INTERACTIVE):
        box = _box(node, words.component)
        yield Element(depth, role, name, "" if description == name else description, box)
        below = depth + 1
    for child in node:
        yield from _walk(child, below, words)


def _box(node: Any, component: str) -> tuple[int, int, int, int] | None:
    place = _NUMBERS.findall(node.get(f"{component}screencoord") or "")
    size = _NUMBERS.findall(node.get(f"{component}size") or "")
    if len(place) != 2 or len(size) != 2:
        return None
    left, top, width, height = int(place[0]), int(place[1]), int(size[0]), int(size[1])
    return (left, top, width, height) if width > 0 and height > 0 else None


def _one_line(text: str | None) -> str:
    if not text:
        return ""
    joined = " ".join(text.replace("\ufffc", " ").split())
    return joined if len(joined) <= MAX_DESCRIPTION else joined[:MAX_DESCRIPTION] + "..."
