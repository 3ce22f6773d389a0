from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_tasks import registry
from rollout_tasks.errors import UserError


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
    registry._load.cache_clear()


def offer(folder: Path, *lines: str) -> None:
    (folder / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    text = "[rollout_tasks.environments]\n" + "\n".join(lines) + "\n"
    (folder / "other-1.0.dist-info" / "entry_points.txt").write_text(text)


def test_the_projects_own_are_found() -> None:
    assert {"math", "py", "simulated"} <= set(registry.known_environments())
    assert {"tool_calling", "simulated"} <= set(registry.known_agents())
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
    assert "math, osworld, py, simulated" in str(caught.value)


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


def test_two_packages_of_one_name_are_an_error(installed: Path) -> None:
    offer(installed, "math = other.environments:Math")

    with pytest.raises(UserError, match=r"two packages offer .* 'math'"):
        registry.environment("math")


def test_knowing_the_names_imports_none_of_them() -> None:
    code = "import sys; from rollout_tasks import registry; registry.known_environments(); "
    code += "print([name for name in sys.modules if name in {'openai', 'jsonschema', 'simpleeval', 'numpy', 'scipy'}])"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
