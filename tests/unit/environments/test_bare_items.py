"""Items that stand for no task, on desktops that are lent bare: their environments take them as they take any other."""

from __future__ import annotations

import pytest

from rollout_tasks import registry
from rollout_tasks.config import RunConfig


@pytest.mark.parametrize("name", ["osworld", "simulated"])
def test_an_environment_with_desktops_takes_its_own_bare_item(name: str) -> None:
    environment = registry.environment(name)
    item = environment.bare_item(RunConfig())

    assert item is not None
    environment.check_item(RunConfig(), item)
    assert environment.needs_vm_for(RunConfig(), item)


@pytest.mark.parametrize("name", ["math", "py"])
def test_one_without_desktops_has_none(name: str) -> None:
    assert registry.environment(name).bare_item(RunConfig()) is None
