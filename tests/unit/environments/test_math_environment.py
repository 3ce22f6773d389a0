from __future__ import annotations

from pathlib import Path

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import EnvironmentContext, Observation, ToolCall, ToolResult
from rollout_tasks.environments.math import MathEnvironment

ITEM = Item(id="1", question="6 * 7?", answer="42")


def calculator(*expressions: str) -> ToolResult:
    environment = MathEnvironment(EnvironmentContext(RunConfig(), Path(), None))
    assert environment.reset(ITEM) == Observation()
    return environment.execute(ToolCall("c", "calculator", {"expressions": list(expressions)}))


def test_one_line_for_each_expression() -> None:
    assert calculator("48/2", "20*.5") == ToolResult("success", "48/2 = 24\n20*.5 = 10")


def test_a_refused_expression_leaves_the_others_their_values() -> None:
    result = calculator("1/0", "1+1")

    assert result == ToolResult("failed", "1/0: error: division by zero\n1+1 = 2")


def test_a_list_too_long_is_refused() -> None:
    result = calculator(*["1"] * 101)

    assert result == ToolResult("failed", "101 expressions are more than the 100 allowed")


def test_it_needs_no_vm_and_leaves_scoring_to_the_answer() -> None:
    environment = MathEnvironment(EnvironmentContext(RunConfig(), Path(), None))

    assert not MathEnvironment.needs_vm_for(RunConfig(), ITEM)
    assert environment.evaluate() is None
    assert MathEnvironment.queue == "rollout.light"
