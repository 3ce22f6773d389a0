"""Reads the accessibility trees of all programs on the desktop, as far as there is time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from . import dbus_format, details, gtk2, gtk4, libreoffice, names, tables
from .bus import Bus
from .dbus_format import Call, Reader
from .nodes import DEEPEST, Box, Node, Program, Windows, expand, read_cache, read_property, read_references, time_left

ROOT = Node(names.REGISTRY, names.ROOT_PATH)


def introduce(bus: Bus, deadline: float) -> None:
    """Makes programs keep a cache, which they do while a client listens; this client's event never happens."""
    event = dbus_format.texts("window:shade")
    body = event + b"\0" * (-len(event) % 4) + dbus_format.numbers(0) + dbus_format.texts("")
    bus.ask([Call(names.REGISTRY, names.REGISTRY_PATH, names.REGISTRY, "RegisterEvent", "sass", body)], deadline)


def read_programs(bus: Bus, deadline: float) -> list[Program]:
    """Returns the programs on the desktop, with the content of their caches."""
    listed = bus.ask([ROOT.call(names.ACCESSIBLE, "GetChildren")], deadline)[0]
    roots = [Node(program, path) for program, path in read_references(listed)]

    def questions(root: Node) -> list[Call]:
        asked = [root.call(names.PROPERTIES, "Get", "ss", dbus_format.texts(names.ACCESSIBLE, "Name"))]
        asked += [
            root.call(names.PROPERTIES, "Get", "ss", dbus_format.texts(names.APPLICATION, what))
            for what in ("ToolkitName", "Version")
        ]
        asked.append(
            Call(
                "org.freedesktop.DBus",
                "/",
                "org.freedesktop.DBus",
                "GetConnectionUnixProcessID",
                "s",
                dbus_format.texts(root.program),
            )
        )
        asked.append(Call(root.program, names.CACHE_PATH, names.CACHE, "GetItems"))
        return asked

    answers = iter(bus.ask([call for root in roots for call in questions(root)], deadline))
    programs = []
    for root in roots:
        name, toolkit, version, pid, items = (next(answers) for _ in range(5))
        known = read_cache(root.program, items)
        root = known.setdefault(root.path, root)
        root.role = names.ROLES.index("application")
        said = str(read_property(name, "")) or root.name
        root.name = names.CALLED.get(said, said)
        found = Program(root, known, str(read_property(toolkit, "")), str(read_property(version, "")))
        found.pid = Reader(pid.body).u32() if pid is not None and pid.signature == "u" else 0
        programs.append(found)
    return programs


def read_desktop(bus: Bus, screen: Box, windows: Callable[[], Windows], deadline: float) -> list[Program]:
    """Returns every program with its whole tree, and details of all visible nodes.

    Args:
        bus: The accessibility bus.
        screen: The screen's left, top, right and bottom.
        windows: Looks where windows are; reading takes seconds, in which others open.
        deadline: When to stop, by the monotonic clock; what has been read by then is returned.
    """
    programs = read_programs(bus, deadline)
    for program in programs:
        if program.root.program not in bus.silent:
            complete(bus, program, screen, deadline)
            while gtk2.is_gtk2(program) and gtk2.show_open_menus(bus, program, windows().popups, deadline):
                complete(bus, program, screen, deadline)
    seen = [node for program in programs for node in program.root.walk() if node.showing]
    details.read_details(bus, seen, deadline)
    for program in programs:
        if gtk4.is_gtk4(program):
            gtk4.set_places(program, windows())
        elif libreoffice.is_libreoffice(program):
            libreoffice.set_places(program)
        if program.root.program in bus.silent:
            program.root.name = program.root.name or _process_name(program.pid)
            program.note = "it does not answer; what is missing here may still be on the screen"
    return programs


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def complete(bus: Bus, program: Program, screen: Box, deadline: float) -> None:
    """Adds the nodes that a program's cache does not have."""
    asked: set[Node] = set()
    wants_all = gtk4.is_gtk4(program)
    for _ in range(DEEPEST):
        wanted = [
            node for node in program.root.walk() if node not in asked and _is_incomplete(node, program, wants_all)
        ]
        if not wanted or not time_left(deadline):
            break
        asked.update(wanted)
        makers = [node for node in wanted if node.states & names.MANAGES_DESCENDANTS]
        expand(bus, program, [node for node in wanted if not node.states & names.MANAGES_DESCENDANTS], deadline)
        for maker in makers:
            asked.update(_without_children(tables.read_children(bus, program, maker, screen, deadline)))
    if wants_all:
        gtk4.set_states(program)


def _is_incomplete(node: Node, program: Program, wants_all: bool) -> bool:
    if node is program.root:
        return True
    if not (node.showing or (wants_all and node.states & names.VISIBLE)):
        return False
    if node.states & names.MANAGES_DESCENDANTS:
        return True
    return node.child_count != len(node.children) and not (node.child_count < 0 and node.children)


def _without_children(cells: Sequence[Node]) -> list[Node]:
    """Returns the cells that are text: nothing inside them adds to it."""
    return [cell for cell in cells if names.TEXT in cell.interfaces]
