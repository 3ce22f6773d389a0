"""Walks the accessibility tree in a process of its own: ``python -m server.walk tree|terminal`` prints JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyatspi
from lxml import etree

NS = {
    name: f"https://accessibility.ubuntu.example.org/ns/{path}"
    for name, path in {
        "st": "state",
        "attr": "attributes",
        "cp": "component",
        "doc": "document",
        "docattr": "document/attributes",
        "txt": "text",
        "val": "value",
        "act": "action",
    }.items()
}


def element(node: Any) -> Any:
    """A node with all below it."""
    made = etree.Element(node.getRoleName().replace(" ", "-") or "unknown", nsmap=NS)
    made.set("name", node.name)
    for state in node.getState().getStates():
        made.set(f"{{{NS['st']}}}{state.value_nick}", "true")
    try:
        box = node.queryComponent().getExtents(pyatspi.XY_SCREEN)
        made.set(f"{{{NS['cp']}}}screencoord", str((box.x, box.y)))
        made.set(f"{{{NS['cp']}}}size", str((box.width, box.height)))
    except NotImplementedError:
        pass
    try:
        text = node.queryText()
        made.text = text.getText(0, text.characterCount)
    except NotImplementedError:
        pass
    for child in node:
        if child is not None:
            made.append(element(child))
    return made


def main() -> None:
    """Prints what was asked for."""
    desktop = pyatspi.Registry.getDesktop(0)
    if sys.argv[1] == "tree":
        root = etree.Element("desktop-frame", nsmap=NS)
        for application in desktop:
            root.append(element(application))
        sys.stdout.write(json.dumps(etree.tostring(root, encoding="unicode")))
        return
    for application in desktop:
        if application.name == "gnome-terminal-server":
            for found in element(application).iter("terminal"):
                sys.stdout.write(json.dumps((found.text or "").rstrip()))
                return
    sys.stdout.write("null")


main()
