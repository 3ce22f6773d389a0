"""Finds the visible cells of a table: a spreadsheet has a thousand million others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from . import dbus_format, names
from .bus import Bus
from .dbus_format import MethodReply, Reader
from .nodes import Box, Node, Program, expand, fetch, fetch_alike, read_property, read_reference

FEW = 400
"""A table with at most this many cells is read whole."""
MOST_CELLS = 4000
SAMPLES = 7
"""Number of points across and down that are asked which cell they show."""
SCREEN_COORDINATES = 0


def read_children(bus: Bus, program: Program, holder: Node, screen: Box, deadline: float) -> list[Node]:
    """Returns the visible children of a node that makes them only when asked."""
    rows, columns = (1, 0) if names.TABLE not in holder.interfaces else _shape(bus, holder, deadline)
    if not columns:
        return _read_list(bus, program, holder, screen, deadline)
    places: tuple[range, range] | None = (range(rows), range(columns))
    if rows * columns > FEW:
        places = _in_sight(bus, holder, screen, rows, columns, deadline)
    if places is None:
        return []
    wanted = [(row, column) for row in places[0] for column in places[1]][:MOST_CELLS]
    asked = [holder.call(names.TABLE, "GetAccessibleAt", "ii", dbus_format.numbers(*place)) for place in wanted]
    return _take(bus, program, holder, bus.ask(asked, deadline), deadline)


def _shape(bus: Bus, table: Node, deadline: float) -> tuple[int, int]:
    asked = [
        table.call(names.PROPERTIES, "Get", "ss", dbus_format.texts(names.TABLE, what))
        for what in ("NRows", "NColumns")
    ]
    rows, columns = (int(read_property(answer, 0)) for answer in bus.ask(asked, deadline))
    return max(rows, 0), max(columns, 0)


def _in_sight(
    bus: Bus, table: Node, screen: Box, rows: int, columns: int, deadline: float
) -> tuple[range, range] | None:
    """Returns the rows and columns seen at a grid of points, and those between the last ones and the edge."""
    indices = _indices_at(bus, table, screen, deadline)
    asked = [
        table.call(names.TABLE, member, "i", dbus_format.numbers(index))
        for index in indices.values()
        for member in ("GetRowAtIndex", "GetColumnAtIndex")
    ]
    answers = [_number(answer) for answer in bus.ask(asked, deadline)]
    if not answers or min(answers) < 0:
        return None
    seen_rows, seen_columns = sorted(set(answers[::2])), sorted(set(answers[1::2]))
    return (
        _range(seen_rows, rows, {y for _x, y in indices}),
        _range(seen_columns, columns, {x for x, _y in indices}),
    )


def _range(seen: Sequence[int], count: int, points: set[int]) -> range:
    """Returns the first to the last one seen, extended by the widest gap at an edge whose point showed none."""
    gap = max((later - earlier for earlier, later in pairwise(seen)), default=1)
    first = seen[0] if 0 in points else max(seen[0] - gap + 1, 0)
    return range(first, min(seen[-1] + (1 if SAMPLES - 1 in points else gap), count))


def _indices_at(bus: Bus, holder: Node, screen: Box, deadline: float) -> dict[tuple[int, int], int]:
    """Returns the index of the child at each point of a grid over the visible part of `holder`."""
    box = _box(bus, holder, deadline)
    left, top = max(box[0], screen[0]), max(box[1], screen[1])
    right, bottom = min(box[0] + box[2], screen[2]), min(box[1] + box[3], screen[3])
    if right - left < 4 or bottom - top < 4:
        return {}
    points = {
        (across, down): (x, y)
        for across, x in enumerate(_spread(left, right))
        for down, y in enumerate(_spread(top, bottom))
    }
    asked = [
        holder.call(names.COMPONENT, "GetAccessibleAtPoint", "iiu", dbus_format.numbers(x, y, SCREEN_COORDINATES))
        for x, y in points.values()
    ]
    references = [read_reference(answer) for answer in bus.ask(asked, deadline)]
    found = [
        (point, Node(*reference))
        for point, reference in zip(points, references, strict=True)
        if reference and reference != (holder.program, holder.path)
    ]
    answers = bus.ask([node.call(names.ACCESSIBLE, "GetIndexInParent") for _point, node in found], deadline)
    return {
        point: index for (point, _node), answer in zip(found, answers, strict=True) if (index := _number(answer)) >= 0
    }


def _spread(start: int, end: int) -> list[int]:
    first, last = start + 2, end - 3
    return [first + (last - first) * step // (SAMPLES - 1) for step in range(SAMPLES)]


def _box(bus: Bus, node: Node, deadline: float) -> Box:
    asked = [node.call(names.COMPONENT, "GetExtents", "u", dbus_format.numbers(SCREEN_COORDINATES))]
    answer = bus.ask(asked, deadline)[0]
    if answer is None or answer.signature != "(iiii)":
        return (0, 0, 0, 0)
    reader = Reader(answer.body)
    return reader.i32(), reader.i32(), reader.i32(), reader.i32()


def _read_list(bus: Bus, program: Program, holder: Node, screen: Box, deadline: float) -> list[Node]:
    counting = [holder.call(names.PROPERTIES, "Get", "ss", dbus_format.texts(names.ACCESSIBLE, "ChildCount"))]
    count = int(read_property(bus.ask(counting, deadline)[0], 0))
    if count <= FEW:
        expand(bus, program, [holder], deadline)
        return holder.children
    seen = sorted(_indices_at(bus, holder, screen, deadline).values())
    if not seen:
        return []
    wanted = range(seen[0], min(seen[-1] + SAMPLES, count))[:MOST_CELLS]
    asked = [holder.call(names.ACCESSIBLE, "GetChildAtIndex", "i", dbus_format.numbers(index)) for index in wanted]
    return _take(bus, program, holder, bus.ask(asked, deadline), deadline)


def _take(
    bus: Bus, program: Program, holder: Node, answers: Sequence[MethodReply | None], deadline: float
) -> list[Node]:
    """Makes the nodes in these answers the holder's children."""
    found: list[Node] = []
    for reference in dict.fromkeys(reference for answer in answers if (reference := read_reference(answer))):
        node = program.known.get(reference[1])
        if node is None:
            node = program.known[reference[1]] = Node(*reference)
        found.append(node)
    new = [node for node in found if not node.interfaces]
    if len(new) <= FEW:
        fetch(bus, new, deadline)
    else:
        fetch(bus, new[:1], deadline)
        fetch_alike(bus, new[1:], new[0], deadline)
    holder.adopt(found)
    return found


def _number(reply: MethodReply | None) -> int:
    return Reader(reply.body).i32() if reply is not None and reply.signature == "i" else -1
