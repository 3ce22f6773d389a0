"""Small defects in Python: cosmic-ray's operators, and rules for what its operators leave out.

Left alone is what no test can notice or promises nothing: annotations, docstrings, messages to the log, the options of
dataclasses, protocols.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from tools.mutation.mutant import Candidate

_COMPARISONS = {
    "Lt": ("LtE", "GtE"),
    "LtE": ("Lt", "Gt"),
    "Gt": ("GtE", "LtE"),
    "GtE": ("Gt", "Lt"),
    "Eq": ("NotEq",),
    "NotEq": ("Eq",),
    "Is": ("IsNot",),
    "IsNot": ("Is",),
}
_ARITHMETIC = (
    "Add_Sub",
    "Sub_Add",
    "Mul_Div",
    "Div_Mul",
    "FloorDiv_Mul",
    "Mod_Mul",
    "Pow_Mul",
    "BitOr_BitAnd",
    "BitAnd_BitOr",
)
_OPERATORS = (
    *(f"ReplaceComparisonOperator_{one}_{other}" for one, others in _COMPARISONS.items() for other in others),
    *(f"ReplaceBinaryOperator_{pair}" for pair in _ARITHMETIC),
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "RemoveDecorator",
    "ZeroIterationForLoop",
)
"""Each comparison becomes its neighbour or its opposite; all pairs would mostly plant what fails at once."""
_LEFT_ALONE = frozenset({"log", "logger", "logging", "warnings", "lru_cache", "TypeVar"})
"""Calls of these."""

Place = tuple[int, int]
"""Line from 1, column from 0."""
_Change = tuple[Place, str, Callable[[], str | None]]
_Located = ast.expr | ast.stmt | ast.keyword | ast.arg


def python_candidates(file: str, source: str) -> Iterator[Candidate]:
    """Yields every place of a module where a rule can plant a defect.

    Args:
        file: Its path in the repository.
        source: Its text.
    """
    tree = ast.parse(source)
    sound = ast.dump(tree)
    left_alone = list(_left_alone(tree))
    for place, kind, change in [*_of_cosmic_ray(source), *_of_our_rules(source, tree)]:
        if not any(start <= place < end for start, end in left_alone):
            yield Candidate(file, source, place, kind, partial(_if_it_matters, sound, change))


def _if_it_matters(sound: str, change: Callable[[], str | None]) -> str | None:
    """The changed text, unless it says the same or is not Python."""
    text = change()
    try:
        return text if text is not None and ast.dump(ast.parse(text)) != sound else None
    except SyntaxError:
        return None


def _of_cosmic_ray(source: str) -> Iterator[_Change]:
    nodes = list(ast_nodes(get_ast(source)))
    for name in _OPERATORS:
        operator = get_operator(f"core/{name}")()
        places = [position[0] for node in nodes for position in operator.mutation_positions(node)]
        for occurrence, (line, column) in enumerate(places):
            if not source[_offset(source, (line, column)) :].startswith("*,"):  # which is not a multiplication
                yield (line, column), name, partial(mutate_code, source, operator, occurrence)


def _of_our_rules(source: str, tree: ast.Module) -> Iterator[_Change]:
    members = _enumeration_members(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and _can_be_dropped(node):
            yield _begin(node), "statement dropped", partial(_replace, source, node, "pass")
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            for caught in node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]:
                yield _begin(caught), "exception let through", partial(_replace, source, caught, "ZeroDivisionError")
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            yield _begin(node), "membership turned", partial(_replace, source, node, f"(not ({_text(source, node)}))")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            others = sorted(members.get(node.value.id, set()) - {node.attr})
            if node.attr in members.get(node.value.id, set()) and others:
                other = others[(node.lineno + node.col_offset) % len(others)]
                yield _begin(node), "member swapped", partial(_replace, source, node, f"{node.value.id}.{other}")
        else:
            yield from _of_lists(source, node)


def _of_lists(source: str, node: ast.AST) -> Iterator[_Change]:
    """Something listed that is left out: a call's named argument, an element, a dictionary's entry."""
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            yield _begin(keyword), "argument dropped", partial(_without, source, node, _begin(keyword), _end(keyword))
    elif isinstance(node, ast.List | ast.Set) and len(node.elts) > 1:
        for element in node.elts:
            yield _begin(element), "element dropped", partial(_without, source, node, _begin(element), _end(element))
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                yield _begin(key), "entry dropped", partial(_without, source, node, _begin(key), _end(value))


def _can_be_dropped(node: ast.stmt) -> bool:
    """Whether the program still runs without a statement: a call, a raise, a del, or an attribute or key that is set."""
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        return isinstance(value, ast.Call)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.Raise | ast.Delete | ast.AugAssign)


def _enumeration_members(tree: ast.Module) -> dict[str, set[str]]:
    """By class, the constants in capitals that the module names as attributes."""
    members: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr.isupper():
            members.setdefault(node.value.id, set()).add(node.attr)
    return {name: names for name, names in members.items() if name[:1].isupper()}


def _left_alone(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield _begin(node.annotation), _end(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield _begin(node.returns), _end(node.returns)
        elif isinstance(node, ast.ClassDef):
            if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                yield _begin(node), _end(node)
            for decorator in node.decorator_list:
                yield (decorator.lineno, 0), _end(decorator)
        elif (isinstance(node, ast.Call) and _name(node.func) in _LEFT_ALONE) or (
            isinstance(node, ast.Assign) and _name(node.targets[0]) in {"__slots__", "__all__"}
        ):
            yield _begin(node), _end(node)


def _name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _begin(node: _Located) -> Place:
    return node.lineno, node.col_offset


def _end(node: _Located) -> Place:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _offset(source: str, place: Place) -> int:
    """Returns where a place of the syntax tree, whose columns count bytes, is in the text."""
    lines = source.splitlines(keepends=True)
    return sum(map(len, lines[: place[0] - 1])) + len(lines[place[0] - 1].encode()[: place[1]].decode())


def _text(source: str, node: _Located) -> str:
    return source[_offset(source, _begin(node)) : _offset(source, _end(node))]


def _replace(source: str, node: _Located, by: str) -> str:
    return source[: _offset(source, _begin(node))] + by + source[_offset(source, _end(node)) :]


def _without(source: str, whole: _Located, start: Place, end: Place) -> str:
    """Returns the source without a part of what commas separate, and without the comma after it."""
    first, last = _offset(source, start), _offset(source, end)
    rest = source[last : _offset(source, _end(whole))]
    if rest.lstrip().startswith(","):
        last += rest.index(",") + 1
    return source[:first] + source[last:]
