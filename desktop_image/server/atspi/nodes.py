"""The nodes of a program's accessibility tree; reads them from its cache at once, or one by one without a cache."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from . import dbus_format, names
from .bus import Bus
from .dbus_format import Call, MethodReply, Reader

WIDEST = 1024
DEEPEST = 50
MOST_NODES = 20_000

Box = tuple[int, int, int, int]
"""x, y, width, height in pixels of the screen."""
Title = tuple[int, str]
"""A window's process id and title."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Where windows are at a moment, as the screen's server knows them."""

    places: Mapping[Title, Box]
    """Positions without shadows."""
    popups: Sequence[Box]
    """Positions of the windows that the window manager ignores, such as open menus."""
    active: Title | None
    """The active window."""


@dataclass(slots=True, eq=False)
class Node:
    """What one thing on the screen reports about itself."""

    program: str
    path: str
    role: int = 0
    name: str = ""
    description: str = ""
    states: int = 0
    interfaces: frozenset[str] = frozenset()
    child_count: int = -1
    """As the node reports; -1 when it does not know."""
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    box: Box | None = None
    text: str = ""
    text_end: int = -1
    """The end offset that asks for all of the text."""
    coordinates: int = 0
    """What positions are relative to: the screen, or the node's window."""
    attributes: dict[str, str] = field(default_factory=dict)
    document: dict[str, str] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    actions: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def showing(self) -> bool:
        """Whether it is visible, as far as its own program knows."""
        return bool(self.states & names.SHOWING)

    def call(self, interface: str, member: str, signature: str = "", body: bytes = b"") -> Call:
        """Returns a call to this node."""
        return Call(self.program, self.path, interface, member, signature, body)

    def walk(self) -> Iterator[Node]:
        """Yields this node and everything below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def adopt(self, children: Iterable[Node]) -> None:
        """Makes these the node's children, and takes them from their earlier parents."""
        self.children = list(children)
        for child in self.children:
            if child.parent is not None and child.parent is not self:
                child.parent.children = [other for other in child.parent.children if other is not child]
            child.parent = self


@dataclass(slots=True)
class Program:
    """A program with its tree."""

    root: Node
    known: dict[str, Node]
    """Its nodes by path."""
    toolkit: str = ""
    version: str = ""
    pid: int = 0
    note: str = ""
    """Why its tree is not complete; empty when it is."""


def read_reference(reply: MethodReply | None) -> tuple[str, str] | None:
    """Returns the program and path that an answer names; None when it names nothing."""
    if reply is None or reply.signature != "(so)":
        return None
    found = Reader(reply.body).reference()
    return None if found[1] == names.NULL_PATH else found


def read_references(reply: MethodReply | None) -> list[tuple[str, str]]:
    """Returns the programs and paths that an answer lists."""
    if reply is None or reply.signature != "a(so)":
        return []
    reader, found = Reader(reply.body), []
    end = reader.begin_array(8)
    while reader.before(end):
        found.append(reader.reference())
    return [(program, path) for program, path in found if path != names.NULL_PATH]


def read_property(reply: MethodReply | None, default: str | int | float) -> str | int | float:
    """Returns a property of the default's type, or the default."""
    if reply is None or reply.signature != "v":
        return default
    try:
        value = Reader(reply.body).value("v")
    except (ValueError, IndexError):
        return default
    return value if isinstance(value, type(default)) else default


def read_states(reply: MethodReply | None) -> int:
    """Returns the states that an answer lists, as bits."""
    if reply is None or reply.signature != "au":
        return 0
    reader = Reader(reply.body)
    end = reader.begin_array(4)
    low = reader.u32() if reader.before(end) else 0
    return low | (reader.u32() << 32 if reader.before(end) else 0)


def read_cache(program: str, reply: MethodReply | None) -> dict[str, Node]:
    """Returns the nodes in a program's cache by path, linked into their tree."""
    if reply is None or reply.signature != "a((so)(so)(so)iiassusau)":
        return {}
    reader = Reader(reply.body)
    found: dict[str, Node] = {}
    places: list[tuple[Node, str, int]] = []
    end = reader.begin_array(8)
    while reader.before(end):
        _itself, path = reader.reference()
        reader.reference()
        _program, parent = reader.reference()
        index, count = reader.i32(), reader.i32()
        interfaces = reader.names()
        name, role, description = reader.text(), reader.u32(), reader.text()
        states_end = reader.begin_array(4)
        states = reader.u32() if reader.before(states_end) else 0
        states |= reader.u32() << 32 if reader.before(states_end) else 0
        node = Node(program, path, role, name, description, states, interfaces, count)
        found[path] = node
        places.append((node, parent, index))
    for node, parent, _index in sorted(places, key=lambda place: place[2]):
        above = found.get(parent)
        if above is not None and above is not node:
            node.parent = above
            above.children.append(node)
    return found


def fetch(bus: Bus, nodes: Sequence[Node], deadline: float) -> None:
    """Asks nodes that were not in a cache for what the cache would have contained."""
    questions = [
        (names.PROPERTIES, "Get", "ss", dbus_format.texts(names.ACCESSIBLE, "Name")),
        (names.PROPERTIES, "Get", "ss", dbus_format.texts(names.ACCESSIBLE, "ChildCount")),
        (names.ACCESSIBLE, "GetRole", "", b""),
        (names.ACCESSIBLE, "GetState", "", b""),
        (names.ACCESSIBLE, "GetInterfaces", "", b""),
    ]
    answers = iter(bus.ask([node.call(*question) for node in nodes for question in questions], deadline))
    for node in nodes:
        name, count, role, states, interfaces = (next(answers) for _ in questions)
        node.name = str(read_property(name, ""))
        node.child_count = int(read_property(count, -1))
        node.role = Reader(role.body).u32() if role is not None and role.signature == "u" else 0
        node.states = read_states(states)
        if interfaces is not None and interfaces.signature == "as":
            node.interfaces = Reader(interfaces.body).names()


def fetch_alike(bus: Bus, nodes: Sequence[Node], model: Node, deadline: float) -> None:
    """Asks nodes of the same kind as `model` only for what differs: name and states."""
    questions = [
        (names.PROPERTIES, "Get", "ss", dbus_format.texts(names.ACCESSIBLE, "Name")),
        (names.ACCESSIBLE, "GetState", "", b""),
    ]
    answers = iter(bus.ask([node.call(*question) for node in nodes for question in questions], deadline))
    for node in nodes:
        name, states = next(answers), next(answers)
        node.name, node.states = str(read_property(name, "")), read_states(states)
        node.role, node.interfaces, node.child_count = model.role, model.interfaces, model.child_count


def expand(bus: Bus, program: Program, nodes: Sequence[Node], deadline: float) -> list[Node]:
    """Asks nodes for their children; returns those that were not known before."""
    answers = bus.ask([node.call(names.ACCESSIBLE, "GetChildren") for node in nodes], deadline)
    new: list[Node] = []
    for node, answer in zip(nodes, answers, strict=True):
        if answer is None:
            continue
        children = []
        for owner, path in read_references(answer)[:WIDEST]:
            child = program.known.get(path)
            if child is None:
                if len(program.known) >= MOST_NODES:
                    program.note = f"the tree is cut after {MOST_NODES} nodes"
                    break
                child = program.known[path] = Node(owner, path)
                new.append(child)
            if not _is_above(child, node) and not _pops_up(child, node):
                children.append(child)
        node.adopt(children)
    fetch(bus, new, deadline)
    return new


def _pops_up(child: Node, node: Node) -> bool:
    """Whether a child is in a window that popped up: GTK 3 lists an open menu there and where it belongs to."""
    return child.parent is not None and child.parent is not node and child.parent.role == names.WINDOW


def _is_above(child: Node, node: Node) -> bool:
    above: Node | None = node
    while above is not None:
        if above is child:
            return True
        above = above.parent
    return False


def time_left(deadline: float) -> bool:
    """Whether there is time for another round of questions."""
    return time.monotonic() < deadline
