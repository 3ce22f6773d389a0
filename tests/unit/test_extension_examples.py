"""The examples of docs/how-to/extend.md: each is found through its entry point, and does what it says."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import load_items
from benchmark.metrics import metric
from rollout_tasks import registry
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import EnvironmentContext, Observation, ToolCall
from rollout_tasks.execution.checked_environment import CheckedEnvironment
from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.runs import preflight
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.conftest import REPOSITORY
from tests.extension_examples import examples, install
from vm_pool.gate_client import connect
from vm_pool.providers import load_provider
from vm_pool.unpooled import unpooled_vm


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    modules = set(sys.modules)

    def put(name: str) -> Path:
        install(name, tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path / name))
        registry._offered.cache_clear()
        return tmp_path / name

    yield put
    registry._offered.cache_clear()
    registry.load.cache_clear()
    for name in set(sys.modules) - modules:
        if name.startswith("my_"):
            del sys.modules[name]


def test_there_is_one_for_each_kind_and_each_is_short() -> None:
    assert list(examples()) == ["my-kitchen", "my-planner", "my-metric", "my-rack"]
    for block in examples().values():
        code = re.search(r"\.py <<'END'\n(.*?)^END$", block, re.M | re.S)
        assert code is not None
        assert len(code[1].splitlines()) <= 45


def test_the_contracts_are_in_the_reference() -> None:
    page = (REPOSITORY / "docs" / "reference" / "api.md").read_text("utf-8")

    for module, names in {
        "rollout_tasks.environments.base": ("Environment", "World", "Tool", "ToolResult"),
        "rollout_tasks.agents.base": ("Agent", "Episode"),
        "benchmark.metrics": ("Metric", "Score"),
        "vm_pool.providers.base": ("Provider",),
    }.items():
        listed = re.search(rf"^::: {re.escape(module)}$.*?members: \[(.*?)\]", page, re.M | re.S)
        assert listed is not None
        assert set(names) <= set(listed[1].split(", "))


def test_the_environment_scores_what_was_chopped(installed: Callable[[str], Path], tmp_path: Path) -> None:
    (item,) = load_items(installed("my-kitchen") / "salad.json")
    config = RunConfig(env_mode="kitchen")
    assert preflight.check_names(config, [item]) == {"kitchen"}
    assert preflight.check_items(config, [item]) == ([item], [])
    assert "rollout.kitchen" in registry.served_queues()

    world = CheckedEnvironment(registry.environment("kitchen")(EnvironmentContext(config, tmp_path, None)), None)
    assert "tomato, onion" in world.reset(item).text
    assert [tool.name for tool in world.tools()] == ["chop"]
    assert world.evaluate() == 0.0
    for what, status in (("tomato", "success"), ("ham", "failed"), ("onion", "success")):
        assert world.execute(ToolCall("1", "chop", {"what": what})).status == status
    assert world.evaluate() == 1.0
    world.close()


class Script:
    """A model that says two things."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def complete(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> Reply:  # noqa: ARG002
        self.sent.append(len(messages))
        text = ["a plan", "29"][len(self.sent) - 1]
        return Reply({"role": "assistant", "content": text}, text, (), "stop", Usage(10, 5, 1))


def test_the_agent_plans_and_answers(installed: Callable[[str], Path], tmp_path: Path) -> None:
    (item,) = load_items(installed("my-planner") / "apples.json")
    config = RunConfig(env_mode="math", agent="planner")
    assert preflight.check_names(config, [item]) == {"math"}
    world = registry.environment("math")(EnvironmentContext(config, tmp_path, None))
    model = Script()
    trajectory = TrajectoryWriter(tmp_path, enabled=False)

    episode = registry.agent("planner")(config).run(item, world, Observation(), model, Limits(), trajectory)

    assert (episode.answer, episode.ending, episode.turns) == ("29", "answer", 2)
    assert episode.usage.total_tokens == 30
    assert model.sent == [1, 3]
    assert len(trajectory.messages) == 4


def test_the_metric_wants_brief_answers(installed: Callable[[str], Path]) -> None:
    installed("my-metric")
    (item, *_) = load_items(REPOSITORY / "examples" / "items.jsonl")

    assert metric("brief")("It is 25.2.", "25.2", item).value == 1.0
    assert metric("brief")("It is " + "really " * 20 + "25.2.", "25.2", item).value == 0.0


def test_the_provider_boots_and_stops_and_ends_what_a_killed_one_left(installed: Callable[[str], Path]) -> None:
    installed("my-rack")
    provider = load_provider("rack", {})

    with unpooled_vm(provider, "rack-test-0") as vm:
        connect(vm.endpoint, "control").close()
        there = provider.reset("rack-test-0")
        provider.check("rack-test-0")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((there.address, there.ports["control"]), timeout=5)

    provider.boot("rack-test-0")
    assert load_provider("rack", {}).reap_leftovers("rack") == []
    assert load_provider("rack", {}).reap_leftovers("rack-test") == ["rack-test-0"]
    with pytest.raises(OSError, match="refused"):
        provider.check("rack-test-0")
