"""A calculator for word problems: restricted arithmetic on numbers. Scores come from comparing the answer."""

from __future__ import annotations

from typing import ClassVar

from benchmark.items import Item
from rollout_tasks.environments.arithmetic import ArithmeticRefused, calculate
from rollout_tasks.environments.base import Environment, EnvironmentContext, Observation, Tool, ToolCall, ToolResult

MAX_EXPRESSIONS = 100
"""Maximum in one call; a longer list is refused entirely."""

CALCULATOR = Tool(
    name="calculator",
    description=(
        "Evaluates arithmetic expressions, each on its own: + - * / // % ** and parentheses, percentages such as 15%, "
        "the constants pi and e, and functions such as sqrt, log, sin, floor, ceil, round, abs, min, max, sum, gcd, "
        "comb and factorial. Returns one line 'expression = value' for each."
    ),
    parameters={
        "type": "object",
        "properties": {
            "expressions": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "The expressions, as in ['48/2', '(3 + 4) * 15%'].",
            }
        },
        "required": ["expressions"],
        "additionalProperties": False,
    },
)

INSTRUCTIONS = (
    "Solve the problem step by step. Use the calculator for every computation, several expressions in one call where "
    "they do not depend on each other. When you are done, answer without calling a tool; end with the final result as "
    "a plain number."
)


class MathEnvironment(Environment):
    """Word problems with a calculator."""

    needs_vm: ClassVar[bool] = False
    compares_answers: ClassVar[bool] = True
    queue: ClassVar[str] = "rollout.light"
    default_agent: ClassVar[str] = "tool_calling"

    def __init__(self, context: EnvironmentContext) -> None:
        """Holds nothing: calls are independent."""

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        """See `Environment`."""
        return INSTRUCTIONS

    def tools(self) -> list[Tool]:
        """Returns the calculator."""
        return [CALCULATOR]

    def reset(self, item: Item) -> Observation:  # noqa: ARG002
        """Returns an empty observation."""
        return Observation()

    def execute(self, call: ToolCall) -> ToolResult:
        """Calculates each expression; ``failed`` if any was refused, but still with the others' values."""
        expressions = call.arguments["expressions"]
        if len(expressions) > MAX_EXPRESSIONS:
            return ToolResult("failed", f"{len(expressions)} expressions are more than the {MAX_EXPRESSIONS} allowed")
        lines = []
        refused = False
        for expression in expressions:
            try:
                lines.append(f"{expression} = {calculate(expression)}")
            except ArithmeticRefused as refusal:
                refused = True
                lines.append(f"{expression[:200]}: error: {refusal}")
        return ToolResult("failed" if refused else "success", "\n".join(lines))

    def evaluate(self) -> float | None:
        """Returns None: the answer is compared."""
        return None

    def close(self) -> None:
        """Does nothing."""
