"""Reads details of the visible nodes: position, text, attributes, value and actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from . import dbus_format, names
from .bus import Bus
from .dbus_format import MethodReply, Reader
from .nodes import Node, read_property

LONGEST_TEXT = 50_000
_READ_VALUES = {"value": "CurrentValue", "min": "MinimumValue", "max": "MaximumValue", "step": "MinimumIncrement"}
_PLACEHOLDERS = str.maketrans("", "", "\ufffc\ufffd")


def read_details(bus: Bus, nodes: Sequence[Node], deadline: float) -> None:
    """Fills in the details of nodes."""
    asked = [(node, question) for node in nodes for question in _questions(node)]
    answers = bus.ask([node.call(*question[:4]) for node, question in asked], deadline)
    for (node, question), answer in zip(asked, answers, strict=True):
        if answer is not None:
            question[4](node, answer)


def read_places(bus: Bus, nodes: Sequence[Node], deadline: float) -> None:
    """Fills in only the positions of nodes."""
    asked = [node for node in nodes if names.COMPONENT in node.interfaces]
    calls = [node.call(names.COMPONENT, "GetExtents", "u", dbus_format.numbers(node.coordinates)) for node in asked]
    for node, answer in zip(asked, bus.ask(calls, deadline), strict=True):
        if answer is not None:
            _box(node, answer)


def _questions(node: Node) -> Iterator[tuple[str, str, str, bytes, Callable[[Node, MethodReply], None]]]:
    if names.COMPONENT in node.interfaces:
        yield names.COMPONENT, "GetExtents", "u", dbus_format.numbers(node.coordinates), _box
    if names.TEXT in node.interfaces:
        yield names.TEXT, "GetText", "ii", dbus_format.numbers(0, node.text_end), _text
    if node.role == names.TABLE_CELL:
        return
    yield names.ACCESSIBLE, "GetAttributes", "", b"", _attributes
    if names.ACTION in node.interfaces:
        yield names.ACTION, "GetActions", "", b"", _actions
    if names.DOCUMENT in node.interfaces:
        yield names.DOCUMENT, "GetAttributes", "", b"", _document
    if names.VALUE in node.interfaces:
        for short, name in _READ_VALUES.items():
            yield names.PROPERTIES, "Get", "ss", dbus_format.texts(names.VALUE, name), partial(_value, short)


def _box(node: Node, answer: MethodReply) -> None:
    if answer.signature == "(iiii)":
        reader = Reader(answer.body)
        node.box = reader.i32(), reader.i32(), reader.i32(), reader.i32()


def _text(node: Node, answer: MethodReply) -> None:
    if answer.signature == "s":
        node.text = Reader(answer.body).text().translate(_PLACEHOLDERS)[:LONGEST_TEXT]


def _value(short: str, node: Node, answer: MethodReply) -> None:
    value = float(read_property(answer, math.nan))
    if math.isfinite(value):
        node.values[short] = value


def _attributes(node: Node, answer: MethodReply) -> None:
    _pairs(node.attributes, answer)


def _document(node: Node, answer: MethodReply) -> None:
    _pairs(node.document, answer)


def _pairs(into: dict[str, str], answer: MethodReply) -> None:
    if answer.signature != "a{ss}":
        return
    reader = Reader(answer.body)
    end = reader.begin_array(8)
    while reader.before(end):
        key, value = reader.reference()
        into[key] = value


def _actions(node: Node, answer: MethodReply) -> None:
    if answer.signature != "a(sss)":
        return
    reader = Reader(answer.body)
    end = reader.begin_array(8)
    while reader.before(end):
        reader.align(8)
        node.actions.append((reader.text(), reader.text(), reader.text()))
