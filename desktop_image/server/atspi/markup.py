"""Writes the accessibility tree as XML, in the form that OSWorld's prompts and evaluators read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from . import names
from .nodes import Node, Program

_NAMESPACE = "https://accessibility.ubuntu.example.org/ns/"
NAMESPACES = {
    "st": "state",
    "attr": "attributes",
    "cp": "component",
    "doc": "document",
    "docattr": "document/attributes",
    "txt": "text",
    "val": "value",
    "act": "action",
}
CALLED_OTHERWISE = {"Chromium": "Google Chrome"}
"""Programs that OSWorld's evaluators know by a related program's name."""

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
_ENTITIES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"}
)
_IN_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_STATES = [(1 << place, f' st:{state}="true"') for place, state in enumerate(names.STATES)]


def render(programs: Sequence[Program]) -> str:
    """Returns one document with all programs."""
    spaces = " ".join(f'xmlns:{short}="{_NAMESPACE}{path}"' for short, path in NAMESPACES.items())
    parts = [f'<desktop-frame {spaces} name="main">']
    for program in programs:
        _render(program.root, parts, _note(program))
    parts.append("</desktop-frame>")
    return "".join(parts)


def _note(program: Program) -> str:
    return f' note="{_value(program.note)}"' if program.note else ""


def _render(root: Node, parts: list[str], note: str) -> None:
    stack: list[Node | str] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            parts.append(node)
            continue
        tag = names.TAGS[node.role] if node.role < len(names.TAGS) else "unknown"
        parts.append(f"<{tag}{''.join(_attributes(node))}{note if node is root else ''}")
        text = _NOT_IN_XML.sub("", node.text).translate(_IN_TEXT) if node.text else ""
        if not node.children and not text:
            parts.append("/>")
            continue
        parts.append(f">{text}")
        stack.append(f"</{tag}>")
        stack.extend(reversed(node.children))


def _attributes(node: Node) -> Iterator[str]:
    yield f' name="{_value(CALLED_OTHERWISE.get(node.name, node.name))}"'
    if node.states:
        yield "".join([text for bit, text in _STATES if node.states & bit])
    attributes = {**node.attributes, "description": node.description} if node.description else node.attributes
    for space, pairs in (("attr", attributes), ("docattr", node.document)):
        for key, value in {_name(key): value for key, value in pairs.items()}.items():
            yield f' {space}:{key}="{_value(value)}"'
    if node.box is not None:
        yield f' cp:screencoord="({node.box[0]}, {node.box[1]})" cp:size="({node.box[2]}, {node.box[3]})"'
    for key, number in node.values.items():
        yield f' val:{key}="{number}"'
    actions = {_name(name): (description, keys) for name, description, keys in node.actions if name}
    for name, (description, keys) in actions.items():
        yield f' act:{name}_desc="{_value(description)}"'
        if keys:
            yield f' act:{name}_kb="{_value(keys)}"'
    if names.IMAGE in node.interfaces:
        yield ' image="true"'


def _value(text: str) -> str:
    return _NOT_IN_XML.sub("", text).translate(_ENTITIES)


def _name(text: str) -> str:
    """Returns a text as the name of an attribute."""
    name = _NOT_IN_NAMES.sub("-", text)
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"
