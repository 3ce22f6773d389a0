"""Evaluates one arithmetic expression as a pocket calculator would, bounded in time and memory. No variables, no text.

Uses simpleeval, restricted to numbers; it does not know whether a result is right for a problem.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from simpleeval import InvalidExpression, SimpleEval

MAX_CHARACTERS = 1_000
MAX_BITS = 3_500
"""Whole numbers stay below about 1,000 digits."""
MAX_FACTORIAL = 450
MAX_COMBINATIONS = 3_000
MAX_ROUNDING_DIGITS = 400
SAME = 1e-14
"""Relative difference that is only binary rounding, as between 0.1 + 0.2 and 0.3."""

_TOO_LARGE = "the result is too large"

Number = int | float


class ArithmeticRefused(ValueError):
    """The expression cannot be calculated; the message says why."""


def calculate(expression: str) -> str:
    """Returns the value as text: whole numbers in full, others without binary rounding noise.

    Understands what people write besides Python: ``10%``, ``15% of 80``, ``2^3``, ``×``, ``÷``, ``$``, ``1,000``.

    Raises:
        ArithmeticRefused: The expression is not arithmetic, has no real value, or is too large.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ArithmeticRefused(f"{len(expression)} characters are more than the {MAX_CHARACTERS} allowed")
    try:
        parsed = ast.parse(_as_python(expression), mode="eval")
        return _shown(_number(_EVALUATOR.eval(expression, previously_parsed=parsed.body)))
    except SyntaxError as error:
        raise ArithmeticRefused(f"not an arithmetic expression: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise ArithmeticRefused("nested too deeply") from error
    except OverflowError as error:
        raise ArithmeticRefused(_TOO_LARGE) from error
    except (InvalidExpression, ArithmeticError, TypeError, ValueError) as error:
        raise ArithmeticRefused(str(error)) from error


_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "$": " ", "€": " ", "£": " "})
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PERCENT = re.compile(r"\s*%\s*(?:(?=[-+*/),^]|$)|(?P<of>of\b))")
_OPERAND = re.compile(r"(?:\d+\.?\d*|\.\d+)$")


def _as_python(expression: str) -> str:
    text = expression.translate(_SPELLINGS).strip()
    if not re.search(r"[A-Za-z\[]", text.replace("of", "")):
        text = _THOUSANDS.sub("", text)
    text = re.sub(r"\bmath\.(?=[a-z])", "", text)
    return _with_percents(text).replace("^", "**")


def _with_percents(text: str) -> str:
    """Writes ``x%`` as ``(x/100)``, except between two operands, where % is the remainder."""
    done, position = "", 0
    for match in _PERCENT.finditer(text):
        done += text[position : match.start()]
        start = _operand_start(done)
        if start is None:
            raise ArithmeticRefused("a percent sign needs a number before it")
        done = f"{done[:start]}({done[start:]}/100)" + ("*" if match["of"] else "")
        position = match.end()
    return done + text[position:]


def _operand_start(text: str) -> int | None:
    """Returns where the number or parenthesis at the end of the text begins; None if not found."""
    if not text.endswith(")"):
        number = _OPERAND.search(text)
        return number.start() if number else None
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        depth += (text[index] == ")") - (text[index] == "(")
        if depth == 0:
            return index
    return None


def _number(value: Any) -> Number:
    """Returns the value if it is a real number within the size limits."""
    if isinstance(value, complex):
        raise ArithmeticRefused("has no real value")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArithmeticRefused("only numbers can be calculated with")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ArithmeticRefused(_TOO_LARGE)
    if isinstance(value, float) and not math.isfinite(value):
        raise ArithmeticRefused("the result is not a finite number")
    return value


def _shown(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    rounded = float(f"{value:.12g}")
    if abs(value - rounded) <= SAME * abs(value):
        value = rounded
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Restricts a function to real numbers within the size limits: a repeated list would fill the memory."""
    return lambda *arguments: function(*map(_number, arguments))


def _divide(dividend: Number, divisor: Number) -> Number:
    if isinstance(dividend, int) and isinstance(divisor, int) and divisor and dividend % divisor == 0:
        return dividend // divisor
    return dividend / divisor


def _power(base: Number, exponent: Number, modulus: int | None = None) -> Number:
    if modulus is not None:
        return int(pow(int(base), int(exponent), modulus))
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(base) > 1 and abs(exponent) * base.bit_length() > 2 * MAX_BITS:  # type: ignore[union-attr]
        raise ArithmeticRefused(_TOO_LARGE)
    return _number(base**exponent)


def _factorial(number: int) -> int:
    if number > MAX_FACTORIAL:
        raise ArithmeticRefused(f"factorials are calculated up to {MAX_FACTORIAL}")
    return math.factorial(number)


def _limited(function: Callable[..., int]) -> Callable[..., int]:
    def limited(total: int, *chosen: int) -> int:
        if total > MAX_COMBINATIONS:
            raise ArithmeticRefused(f"combinations are calculated up to {MAX_COMBINATIONS}")
        return function(total, *chosen)

    return limited


def _round(value: Number, digits: int = 0) -> Number:
    if abs(digits) > MAX_ROUNDING_DIGITS:
        raise ArithmeticRefused(f"rounds to {MAX_ROUNDING_DIGITS} digits at most")
    return round(value, digits) if digits else round(value)


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_MATH = (
    "sqrt cbrt isqrt exp log log2 log10 hypot sin cos tan asin acos atan atan2 degrees radians floor ceil trunc gcd lcm"
)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _of_numbers(getattr(math, name)) for name in _MATH.split()},
    "abs": _of_numbers(abs),
    "comb": _of_numbers(_limited(math.comb)),
    "factorial": _of_numbers(_factorial),
    "float": _of_numbers(float),
    "int": _of_numbers(int),
    "ln": _of_numbers(math.log),
    "max": max,
    "min": min,
    "perm": _of_numbers(_limited(math.perm)),
    "pow": _of_numbers(_power),
    "round": _of_numbers(_round),
    "sum": lambda numbers: sum(numbers),
}


class _Evaluator(SimpleEval):  # type: ignore[misc]
    """simpleeval restricted to numbers, lists of numbers, and the operators and functions above."""

    nodes: dict[type[ast.AST], Callable[[Any], Any]]

    def __init__(self) -> None:
        operators = {kind: _of_numbers(function) for kind, function in _OPERATORS.items()}
        super().__init__(operators, _FUNCTIONS, {"pi": math.pi, "e": math.e, "tau": math.tau})
        kept: tuple[type[ast.AST], ...] = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Name)
        self.nodes = {kind: self.nodes[kind] for kind in kept}
        self.nodes.update({ast.Call: self._eval_named_call, ast.List: self._eval_list, ast.Tuple: self._eval_list})

    def _eval_named_call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name):
            raise ArithmeticRefused("only functions with a name can be called; write * to multiply")
        return self._eval_call(node)

    def _eval_list(self, node: ast.List | ast.Tuple) -> list[Number]:
        return [_number(self._eval(element)) for element in node.elts]


_EVALUATOR = _Evaluator()
