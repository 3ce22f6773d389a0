"""An open menu of GTK 3 is listed by its window and by what it belongs to: it is read as its window's, where it is seen."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any

import pytest

from desktop_image.server.atspi import names, reader
from desktop_image.server.atspi.dbus_format import Call, MethodReply, texts
from desktop_image.server.atspi.nodes import Node, Program

SHOWN = names.VISIBLE | names.SHOWING


class Children:
    """A bus on which everything tells its children, and nothing else."""

    def __init__(self, children: dict[str, list[str]]) -> None:
        self._children = children
        self.silent: set[str] = set()

    def ask(self, calls: Sequence[Call], _deadline: float) -> list[MethodReply | None]:
        return [references(self._children[call.path]) if call.member == "GetChildren" else None for call in calls]


def references(paths: Sequence[str]) -> MethodReply:
    body = b""
    for path in paths:
        body += b"\0" * (-len(body) % 8) + texts("p", path)
    return MethodReply(struct.pack("<Ixxxx", len(body)) + body, "a(so)", "")


def node(path: str, role: str, children: int) -> Node:
    return Node("p", path, names.ROLES.index(role), states=SHOWN, child_count=children)


@pytest.mark.parametrize("owner", ["combo", "popup", None])
@pytest.mark.parametrize("popup_first", [True, False])
def test_it_is_in_its_window(owner: str | None, popup_first: bool) -> None:
    """Whatever the program's cache says, and whichever is asked first."""
    known = {
        "/": node("/", "application", 2),
        "frame": node("frame", "frame", 1),
        "combo": node("combo", "combo box", 1),
        "popup": node("popup", "window", 1),
        "menu": node("menu", "menu", 0),
    }
    windows = ["popup", "frame"] if popup_first else ["frame", "popup"]
    known["/"].adopt(known[path] for path in windows)
    known["frame"].adopt([known["combo"]])
    if owner:
        known[owner].adopt([known["menu"]])
    told = {"/": windows, "frame": ["combo"], "combo": ["menu"], "popup": ["menu"], "menu": []}
    bus: Any = Children(told)

    reader.complete(bus, Program(known["/"], known, "gtk", "3.24"), (0, 0, 1920, 1080), time.monotonic() + 5)

    assert known["popup"].children == [known["menu"]]
    assert known["combo"].children == []
