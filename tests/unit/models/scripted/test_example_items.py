"""The example benchmark: its scripts really compute what they say, so that a first run scores 1.0 for good reasons."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmark.items import load_items
from benchmark.metrics import metric
from rollout_tasks.environments.arithmetic import ArithmeticRefused, calculate
from rollout_tasks.models.scripted.scripts import load_scripts, uncovered

ITEMS = {item.id: item for item in load_items(Path(__file__).resolve().parents[4] / "examples" / "items.jsonl")}
SCRIPTS = load_scripts(ITEMS.values())
RECOVERING = {"sailing-crew", "median-temperature"}
"""Their first call fails, and the next one makes up for it."""


def of_domain(domain):
    return [pytest.param(item, id=item.id) for item in ITEMS.values() if item.domain == domain]


def calls_of(item):
    """The expressions of each call, in order."""
    return [call.arguments["expressions"] for turn in SCRIPTS.find(item.id) for call in turn.tool_calls]


def test_there_are_at_least_twenty_items_of_two_kinds_and_all_have_a_script():
    assert len(ITEMS) >= 20
    assert min(Counter(item.domain for item in ITEMS.values()).values()) >= 10
    assert uncovered(ITEMS.values()) == []


@pytest.mark.parametrize("item", [*of_domain("math"), *of_domain("py")])
def test_an_item_names_its_environment_and_its_script_ends_with_the_answer(item):
    turns = SCRIPTS.find(item.id)
    tool = {"math": "calculator", "py": "python_interpreter"}[item.domain]

    assert item.env_config == {"env_mode": item.domain}
    assert {call.name for turn in turns for call in turn.tool_calls} == {tool}
    assert not turns[-1].tool_calls
    assert metric("final_number")(turns[-1].text, item.answer, item).value == 1.0
    assert metric("final_number")("The answer is nowhere near.", item.answer, item).value == 0.0


@pytest.mark.parametrize("item", of_domain("math"))
def test_the_calculator_gives_the_answer(item):
    calls = calls_of(item)

    if item.id in RECOVERING:
        with pytest.raises(ArithmeticRefused):
            calculate(calls.pop(0)[0])
    values = [calculate(expression) for expressions in calls for expression in expressions]

    assert metric("final_number")(str(values[-1]), item.answer, item).value == 1.0


@pytest.mark.parametrize("item", of_domain("py"))
def test_python_gives_the_answer(item):
    calls = calls_of(item)

    runs = [
        subprocess.run([sys.executable, "-I", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=30)
        for lines in calls
    ]

    assert [run.returncode for run in runs] == ([1, 0] if item.id in RECOVERING else [0])
    assert metric("numeric_match")(runs[-1].stdout, item.answer, item).value == 1.0
