"""Reads a profile's texts, also those that stand in the source of an installed package, such as OSWorld's own prompts.

The package's code is parsed and never run: its modules import much, and are not ours. Only what makes text is understood:
literals, names, f-strings, ``+``, conditions on given values, and a few methods. Names that have no value become places in the
text: ``{name}``.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rollout_tasks.agents.profiles.profile import PackagedText, Text
from rollout_tasks.environments.osworld.desktop_env_import import INSTALL_COMMAND
from rollout_tasks.errors import UserError

_DEEPEST = 40
"""Texts within texts."""
_LARGEST_SOURCE = 2 << 20
_DISTRIBUTIONS = {"mm_agents": f"desktop-env, which is not installed: {INSTALL_COMMAND}"}
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


class TextUnreadable(UserError):
    """A text cannot be read from its package; one sentence naming the text."""


class _NotUnderstoodError(Exception):
    """The source is not of the kinds that make text; the message completes "cannot be read:"."""


def read_text(text: Text) -> str:
    """Returns a text of a profile.

    Raises:
        TextUnreadable: Its package is not installed, or has no such text.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, tuple):
        return "".join(map(read_text, text))
    return _packaged(text)


def filled(text: str, values: Mapping[str, str]) -> str:
    """Returns a text with each ``{name}`` that has a value replaced by it, in one pass; other braces stay as they are."""
    if not values:
        return text
    places = re.compile(r"\{(" + "|".join(map(re.escape, values)) + r")\}")
    return places.sub(lambda place: values[place[1]], text)


def _packaged(text: PackagedText) -> str:
    values = {name: read_text(value) for name, value in text.values.items()}
    try:
        found = _Source(_module(text.module), values).named(text.name)
    except _NotUnderstoodError as problem:
        raise TextUnreadable(f"the text {text.name} of {text.module} cannot be read: {problem}") from problem
    except RecursionError as problem:
        raise TextUnreadable(
            f"the text {text.name} of {text.module} cannot be read: it is nested too deeply"
        ) from problem
    if not isinstance(found, str):
        raise TextUnreadable(f"{text.name} of {text.module} is not text")
    return filled(found, values)


@lru_cache(maxsize=32)
def _module(name: str) -> ast.Module:
    """Returns a module's syntax tree, without importing anything of its package."""
    top, *inner = name.split(".")
    try:
        package = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        package = None
    if package is None:
        missing = _DISTRIBUTIONS.get(top, f"{top}, which is not installed")
        raise TextUnreadable(f"the texts of {name} are in the package {missing}")
    places = [Path(place) for place in package.submodule_search_locations or ()]
    paths = [path for place in places for path in _candidates(place, inner)]
    if not inner and package.origin:
        paths.append(Path(package.origin))
    path = next((path for path in paths if path.suffix == ".py" and path.is_file()), None)
    if path is None:
        raise TextUnreadable(f"the installed package {top} has no source of {name}")
    try:
        if path.stat().st_size > _LARGEST_SOURCE:
            raise TextUnreadable(f"the source of {name} is larger than {_LARGEST_SOURCE >> 20} MiB")
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TextUnreadable(f"the source of {name} cannot be read: {type(error).__name__}") from error


def _candidates(folder: Path, inner: Sequence[str]) -> list[Path]:
    inside = folder.joinpath(*inner)
    return [inside.with_name(f"{inside.name}.py"), inside / "__init__.py"] if inner else [folder / "__init__.py"]


class _Source:
    """Evaluates names of one module."""

    def __init__(self, module: ast.Module, values: Mapping[str, str]) -> None:
        self._scopes: list[Sequence[ast.stmt]] = [module.body]
        self._values = values
        self._depth = 0

    def named(self, name: str) -> Any:
        """Returns what a name stands for, an entry of a list as ``name[0]``, a method's variable as ``Class.method.name``."""
        try:
            node = ast.parse(name, mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise _NotUnderstoodError("that is not a name") from error
        entries: list[ast.expr] = []
        while isinstance(node, ast.Subscript):
            entries.insert(0, node.slice)
            node = node.value
        *outer, last = _dotted(node)
        for scope in outer:
            self._scopes.append(self._inner(scope))
        found = self._variable(last)
        for entry in entries:
            found = self._entry(found, entry)
        return found

    def _inner(self, name: str) -> Sequence[ast.stmt]:
        for statement in reversed(self._scopes[-1]):
            if isinstance(statement, ast.ClassDef | _FUNCTIONS) and statement.name == name:
                return statement.body
        raise _NotUnderstoodError(f"there is no {name}")

    def _variable(self, name: str) -> Any:
        for scope in reversed(self._scopes):
            for statement in reversed(scope):
                value = _assigned(statement, name)
                if value is not None:
                    return self._value(value)
        raise _NotUnderstoodError(f"{name} has no value there")

    def _value(self, node: ast.expr) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _NotUnderstoodError("it is nested too deeply")
        try:
            return self._evaluated(node)
        finally:
            self._depth -= 1

    def _evaluated(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self._values[name] if name in self._values else self._variable(name)
            case ast.Attribute():
                return self._attribute(node)
            case ast.JoinedStr(parts):
                return "".join(self._part(part) for part in parts)
            case ast.List(entries) | ast.Tuple(entries):
                return [self._value(entry) for entry in entries]
            case ast.Dict(keys, entries):
                pairs = zip(keys, entries, strict=True)
                return {self._value(_present(key)): self._value(entry) for key, entry in pairs}
            case ast.BinOp(left, ast.Add(), right):
                return _text(self._value(left)) + _text(self._value(right))
            case ast.IfExp(test, chosen, other):
                return self._value(chosen if self._holds(test) else other)
            case ast.Subscript(value, entry):
                return self._entry(self._value(value), entry)
            case ast.Call():
                return self._called(node)
        raise _NotUnderstoodError(f"line {node.lineno} is not text")

    def _part(self, part: ast.expr) -> str:
        """Returns a part of an f-string; a name without a value becomes a place in the text."""
        if isinstance(part, ast.FormattedValue):
            written = ast.unparse(part.value)
            if written in self._values:
                return self._values[written]
            if part.conversion != -1 or part.format_spec is not None:
                raise _NotUnderstoodError(f"line {part.lineno} formats a value")
            try:
                return _text(self._value(part.value))
            except _NotUnderstoodError:
                if isinstance(part.value, ast.Name):
                    return f"{{{part.value.id}}}"
                raise
        return _text(self._value(part))

    def _attribute(self, node: ast.Attribute) -> str:
        name = ".".join(_dotted(node))
        if name not in self._values:
            raise _NotUnderstoodError(f"{name} has no value there")
        return self._values[name]

    def _holds(self, test: ast.expr) -> bool:
        match test:
            case ast.Compare(left, [ast.Eq()], [right]):
                return bool(self._value(left) == self._value(right))
        raise _NotUnderstoodError(f"the condition of line {test.lineno} is not a comparison")

    def _entry(self, value: Any, index: ast.expr) -> Any:
        number = self._value(index)
        if isinstance(value, list) and type(number) is int and 0 <= number < len(value):
            return value[number]
        raise _NotUnderstoodError("it has no such entry")

    def _called(self, call: ast.Call) -> str:
        match call:
            case ast.Call(ast.Attribute(text, "strip"), [], []):
                return _text(self._value(text)).strip()
            case ast.Call(ast.Attribute(text, "join"), [entries], []):
                joined = self._value(entries)
                if isinstance(joined, list):
                    return _text(self._value(text)).join(map(_text, joined))
            case ast.Call(ast.Attribute(ast.Name("json"), "dumps"), [value], []):
                return json.dumps(self._value(value))
        raise _NotUnderstoodError(f"line {call.lineno} calls something")


def _dotted(node: ast.expr) -> list[str]:
    match node:
        case ast.Name(name):
            return [name]
        case ast.Attribute(value, name):
            return [*_dotted(value), name]
    raise _NotUnderstoodError("that is not a name")


def _assigned(statement: ast.stmt, name: str) -> ast.expr | None:
    match statement:
        case ast.Assign([ast.Name(found)], value) if found == name:
            return value
        case ast.AnnAssign(ast.Name(found), _, ast.expr() as value) if found == name:
            return value
    return None


def _present(key: ast.expr | None) -> ast.expr:
    if key is None:
        raise _NotUnderstoodError("it takes in another mapping")
    return key


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _NotUnderstoodError("a part of it is not text")
