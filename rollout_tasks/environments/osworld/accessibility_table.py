"""The accessibility tree as the table that OSWorld's own agents get, equal to the byte: for comparisons with them.

A header, then a row for each element that has one of certain roles, is shown, not disabled and on the screen, and has
a name or text. Columns, separated by tabs: role, name, text, class, description, place and size. Elements keep their
order, and lose their depth.
"""

from __future__ import annotations

import re
from typing import Any

from rollout_tasks.environments.osworld.accessibility_tree import MAX_CHARACTERS, parsed

HEADER = "tag\tname\ttext\tclass\tdescription\tposition (top-left x&y)\tsize (w&h)"
CUT = "[...]\n"
"""Ends a table that is too long, as in OSWorld."""
_HOST = "https://accessibility.{system}.example.org/ns/{part}"
_ENDINGS = (
    "item",
    "button",
    "heading",
    "label",
    "scrollbar",
    "searchbox",
    "textbox",
    "link",
    "tabelement",
    "textfield",
    "textarea",
    "menu",
)
_OTHERS = """
    alert canvas check-box combo-box entry icon image paragraph scroll-bar section slider static table-cell terminal text
    netuiribbontab start trayclockwclass traydummysearchcontrol uiimage uiproperty uiribboncommandbar
"""
_ROLES = frozenset(_OTHERS.split())
_USABLE = ("enabled", "editable", "expandable", "checkable")
_PAIR = re.compile(r"\(?\s*(-?\d+)\s*,\s*(-?\d+)\s*\)?")


def written(xml: str, *, system: str = "ubuntu") -> str:
    """Returns the table of a tree.

    Args:
        xml: As the guest's server gives it.
        system: The word in its namespaces: ``ubuntu`` or ``windows``.

    Raises:
        ValueError: It is not XML.
    """
    nodes = [node for node in parsed(xml).iter() if isinstance(node.tag, str) and _is_listed(node, system)]
    text = "\n".join([HEADER, *(_row(node, system) for node in nodes)])
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + CUT


def _get(node: Any, system: str, part: str, name: str) -> str:
    return str(node.get(f"{{{_HOST.format(system=system, part=part)}}}{name}") or "")


def _is_listed(node: Any, system: str) -> bool:
    tag = node.tag
    if not (tag.startswith("document") or tag.endswith(_ENDINGS) or tag in _ROLES):
        return False
    states = ("visible",) if system == "windows" else ("showing", "visible")
    if not all(_get(node, system, "state", state) == "true" for state in states):
        return False
    if not any(_get(node, system, "state", state) == "true" for state in _USABLE):
        return False
    if not (node.get("name") or node.text):
        return False
    place = _PAIR.fullmatch(_get(node, system, "component", "screencoord"))
    size = _PAIR.fullmatch(_get(node, system, "component", "size"))
    if not place or not size:
        return False
    return int(place[1]) >= 0 and int(place[2]) >= 0 and int(size[1]) > 0 and int(size[2]) > 0


def _row(node: Any, system: str) -> str:
    text = node.text
    windows_class = _get(node, "windows", "class", "class")
    if not text and windows_class.endswith("EditWrapper"):
        text = _get(node, system, "value", "value")
    # OSWorld looks for Linux's attributes among Windows's, where they never are: class and description are empty.
    cells = (
        node.tag,
        node.get("name", ""),
        _quoted(text) if text else '""',
        windows_class if system == "windows" else _get(node, "windows", "attributes", "class"),
        _get(node, "windows", "attributes", "description"),
        _get(node, system, "component", "screencoord"),
        _get(node, system, "component", "size"),
    )
    return "\t".join(cells)


def _quoted(text: str) -> str:
    return text if '"' not in text else '"' + text.replace('"', '""') + '"'
