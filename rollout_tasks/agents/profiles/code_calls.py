"""The calls in a model's Python. The code is parsed and never run: only calls with literal arguments are understood."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout_tasks.agents.profiles.reply import MOST_ACTIONS, UnusableReplyError, shown

LONGEST_CODE = 20_000
"""Characters; Python's parser needs memory and stack for them."""
_IMPORTED = frozenset({"pyautogui", "time"})
_NOT_READ = frozenset({"tween"})
"""Arguments that are a function of pyautogui and only shape a movement."""


@dataclass(frozen=True, slots=True)
class CodeCall:
    """A call such as ``pyautogui.click(1, y=2)``."""

    name: str
    """With its module."""
    positional: Sequence[Any]
    named: Mapping[str, Any]


def read_calls(code: str) -> Iterator[CodeCall]:
    """Yields the calls in order.

    Raises:
        UnusableReplyError: Not Python, or something other than function calls with literal arguments.
    """
    if len(code) > LONGEST_CODE:
        raise UnusableReplyError(f"The code has more than {LONGEST_CODE} characters.")
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableReplyError("The code is not valid Python.") from error
    if len(statements) > 2 * MOST_ACTIONS:
        raise UnusableReplyError("The code has too many statements.")
    for statement in statements:
        yield from _calls(statement)


def _calls(statement: ast.stmt) -> Iterator[CodeCall]:
    if isinstance(statement, ast.Import):
        unknown = [name.name for name in statement.names if name.name not in _IMPORTED or name.asname]
        if unknown:
            raise UnusableReplyError(f"The import of {shown(unknown[0])} is not understood.")
    elif isinstance(statement, ast.Pass):
        return
    elif not isinstance(statement, ast.Expr):
        raise UnusableReplyError(f"Line {statement.lineno} of the code is not a function call.")
    elif isinstance(statement.value, ast.Call):
        yield _call(statement.value)
    elif isinstance(statement.value, ast.Dict):
        yield _described(statement.value)
    elif not (isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)):
        raise UnusableReplyError(f"Line {statement.lineno} of the code is not a function call.")


def _call(call: ast.Call) -> CodeCall:
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        name = f"{function.value.id}.{function.attr}"
    else:
        raise UnusableReplyError(f"Line {call.lineno} of the code calls no function of pyautogui, time or computer.")
    named = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise UnusableReplyError(f"An argument of {shown(name)} is not a literal value.")
        if keyword.arg not in _NOT_READ:
            named[keyword.arg] = _literal(keyword.value, name)
    return CodeCall(name, [_literal(argument, name) for argument in call.args], named)


def _described(described: ast.Dict) -> CodeCall:
    """Returns a call that is written as the prompt describes it: an object with a name and with arguments."""
    values: dict[object, ast.expr] = {
        key.value: value
        for key, value in zip(described.keys, described.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    name, given = values.get("name"), values.get("arguments", values.get("parameters"))
    if isinstance(name, ast.Constant) and isinstance(name.value, str) and isinstance(given, ast.Dict):
        named = {
            key.value: _literal(value, "the call")
            for key, value in zip(given.keys, given.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        return CodeCall(name.value, [], named)
    raise UnusableReplyError(f"Line {described.lineno} of the code is not a function call.")


def _literal(node: ast.expr, function: str) -> Any:
    """Returns a number, text, True, False, None, or a flat list of those."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return node.value
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub | ast.UAdd)
        and isinstance(node.operand, ast.Constant)
    ):
        value = node.operand.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.List | ast.Tuple) and not any(isinstance(one, ast.List | ast.Tuple) for one in node.elts):
        return [_literal(one, function) for one in node.elts]
    raise UnusableReplyError(f"An argument of {shown(function)} is not a literal value.")
