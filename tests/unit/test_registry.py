from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs import preflight
from rollout_tasks.runs.enqueue import rollout_queues
from rollout_tasks.worker.bootsteps import preload_environments


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path that holds another package's entry points."""
    (tmp_path / "other-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    clear()
    yield tmp_path
    clear()


def clear() -> None:
    registry._offered.cache_clear()
    registry.load.cache_clear()


def offer(folder: Path, *lines: str) -> None:
    (folder / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    text = "[rollout_tasks.environments]\n" + "\n".join(lines) + "\n"
    (folder / "other-1.0.dist-info" / "entry_points.txt").write_text(text)


def test_the_projects_own_are_found() -> None:
    assert {"math", "py", "simulated"} <= set(registry.known_environments())
    assert {"tool_calling", "simulated"} <= set(registry.known_agents())
    assert registry.FILE_AGENT not in registry.known_agents(), "users name the profile's file"
    assert registry.environment("math").queue == "rollout.light"
    assert registry.agent(registry.environment("math").default_agent).needs_model


@pytest.mark.parametrize(
    ("name", "said"),
    [("mathe", "unknown environment 'mathe': did you mean math? known: "), ("", "unknown environment '': known: ")],
)
def test_an_unknown_name_names_the_known_and_the_closest(name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        registry.environment(name)

    assert str(caught.value).startswith(said)
    assert "math, osworld, py, rag, simulated" in str(caught.value)


def test_an_unknown_agent() -> None:
    with pytest.raises(UserError, match="unknown agent 'tool_caling': did you mean tool_calling"):
        registry.agent("tool_caling")


def test_other_packages_add_theirs(installed: Path) -> None:
    offer(installed, "mine = rollout_tasks.environments.math:MathEnvironment")

    assert registry.environment("mine") is registry.environment("math")


def test_one_that_cannot_be_imported_is_named_and_the_rest_is_served(installed: Path) -> None:
    offer(installed, "broken = no_such_package.there:Environment")

    with pytest.raises(UserError, match="environment 'broken' cannot be loaded from no_such_package"):
        registry.environment("broken")
    available = registry.available_environments()
    assert "no_such_package" in str(available["broken"])
    assert available["math"] is None
    assert "rollout.light" in registry.served_queues()


WRONG = """
from rollout_tasks.environments.math import MathEnvironment

class Wrong(MathEnvironment):
    queue = "rollout.wrong"
    default_agent = "nobody"

    @classmethod
    def check_available(cls):
        {check_available}

    @classmethod
    def preload(cls):
        {preload}

    {check_item}
"""


def offer_wrong(folder: Path, check_available: str = "pass", preload: str = "pass", check_item: str = "") -> None:
    """Offers an environment of this kind, which follows its contract."""
    module = f"wrong_{folder.parent.name}_{folder.name}".replace("-", "_")
    (folder / f"{module}.py").write_text(
        WRONG.format(check_available=check_available, preload=preload, check_item=check_item)
    )
    offer(folder, f"wrong = {module}:Wrong")


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        ("raise KeyError('x')", "environment 'wrong': check_available: KeyError: 'x'"),
        (
            "import no_such_package",
            "environment 'wrong': check_available: ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("raise SystemExit(3)", "environment 'wrong': check_available: SystemExit: 3"),
        ("raise RuntimeError('no oven here')", "no oven here"),
    ],
)
def test_one_that_fails_to_check_this_machine_is_not_served_and_the_rest_is(
    installed: Path, breaks: str, says: str
) -> None:
    offer_wrong(installed, check_available=breaks)

    assert registry.available_environments()["wrong"] == says
    assert "rollout.light" in registry.served_queues()
    assert "rollout.wrong" not in registry.served_queues()


def test_the_queues_of_all_rollouts_leave_out_one_that_cannot_be_loaded(installed: Path) -> None:
    offer(installed, "broken = no_such_package.there:Environment")
    rollout_queues.cache_clear()

    assert "rollout.light" in rollout_queues()
    rollout_queues.cache_clear()


@pytest.mark.parametrize("breaks", ["raise KeyError('x')", "raise SystemExit(3)", "pass"])
def test_a_worker_starts_in_spite_of_one_that_cannot_be_preloaded(
    installed: Path, caplog: pytest.LogCaptureFixture, breaks: str
) -> None:
    offer_wrong(installed, preload=breaks)

    preload_environments(["rollout.wrong", "rollout.light"])

    said = [record.getMessage() for record in caplog.records]
    assert [sentence.startswith("environment 'wrong'") for sentence in said] == [True] * len(said)
    assert "unknown agent 'nobody'" in said[-1]
    assert len(said) == (1 if breaks == "pass" else 2)


CHECKED_METHODS = {
    "check_item": lambda config, items: preflight.check_items(config, items),
    "needs": lambda config, items: preflight.needs(config, items),
    "unmet": lambda config, items: preflight.unmet(config, items),
    "needs_vm_for": lambda config, items: preflight.needs_vm(config, items),
}


@pytest.mark.parametrize("method", CHECKED_METHODS)
def test_a_check_that_breaks_before_a_run_is_one_sentence(installed: Path, method: str) -> None:
    offer_wrong(
        installed, check_item=f"@classmethod\n    def {method}(cls, config, items):\n        raise KeyError('colour')"
    )

    with pytest.raises(UserError) as told:
        CHECKED_METHODS[method](RunConfig(env_mode="wrong"), [Item("one", "?", "1")])

    assert str(told.value).endswith(f"environment 'wrong': {method}: KeyError: 'colour'")


def test_a_queue_that_no_environment_has_is_noticed(installed: Path) -> None:
    offer(
        installed,
        "mine = other_environments:Mine",
        "broken = no_such_package.there:Environment",
    )
    (installed / "other_environments.py").write_text(
        "from rollout_tasks.environments.math import MathEnvironment\n\n"
        "class Mine(MathEnvironment):\n    queue = 'rollouts-of-mine'\n"
    )

    known = ["rollout.light", "rollout.py", "rollout.osworld", "rollouts-of-mine", "rollout.broken"]
    assert registry.unknown_queues([*known, "finalize", "mine", "light"]) == {}
    assert registry.unknown_queues(["rollout.lihgt", "rollout"]) == {
        "rollout.lihgt": "did you mean rollout.light?",
        "rollout": "known: rollout.broken, rollout.light, rollout.osworld, rollout.py, rollout.rag, rollout.simulated,"
        " rollout.web, rollouts-of-mine",
    }


def test_two_packages_of_one_name_are_an_error(installed: Path) -> None:
    offer(installed, "math = other.environments:Math")

    with pytest.raises(UserError, match=r"two packages offer .* 'math'"):
        registry.environment("math")


def test_knowing_the_names_imports_none_of_them() -> None:
    code = "import sys; from rollout_tasks import registry; registry.known_environments(); "
    code += "print([name for name in sys.modules if name in {'openai', 'jsonschema', 'simpleeval', 'numpy', 'scipy'}])"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
