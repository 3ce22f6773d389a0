"""Finds environments and agents by name, including those of other packages (entry points); loads them on demand.

A package adds its own with ``[project.entry-points."rollout_tasks.environments"]``, ``name = "module:Class"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from rollout_tasks.agents.base import Agent
from rollout_tasks.agents.osworld import agent_classes as agents_of_osworld
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Environment
from rollout_tasks.errors import UserError

ENVIRONMENTS = "rollout_tasks.environments"
AGENTS = "rollout_tasks.agents"
OSWORLD_AGENT = agents_of_osworld.PREFIX
"""Before the names of OSWorld's own agents."""
FILE_AGENT = "profile"
"""The agent of a run whose profile came from a file. Users name the file."""


def environment(name: str) -> type[Environment]:
    """Returns the environment's class.

    Raises:
        UserError: No package offers that name, it cannot be imported, or it breaks its contract.
    """
    return cast(type[Environment], load(ENVIRONMENTS, "environment", name, Environment))


def agent(name: str) -> type[Agent]:
    """Returns the agent's class.

    Raises:
        UserError: No package offers that name, it cannot be imported, or it breaks its contract.
    """
    if name.startswith(OSWORLD_AGENT):
        from rollout_tasks.agents.osworld.agent import osworld_agent  # here, because few runs have such an agent

        return osworld_agent(name)
    return cast(type[Agent], load(AGENTS, "agent", name, Agent))


def environment_name(item: Item, config: RunConfig) -> str:
    """Returns the environment an item runs in: its own `env_mode` if its env_config has one, else the run's."""
    name = item.env_config.get("env_mode", config.env_mode)
    return name if isinstance(name, str) else config.env_mode


def known_environments() -> list[str]:
    """Returns the names of all environments, whether this machine can serve them or not; imports none."""
    return sorted(_offered(ENVIRONMENTS))


def known_agents() -> list[str]:
    """Returns the names of all agents that users can name, and those of OSWorld's that can be used here; imports none."""
    osworlds = (f"{OSWORLD_AGENT}{name}" for name, one in agents_of_osworld.agent_classes().items() if not one.unusable)
    return sorted([*(_offered(AGENTS).keys() - {FILE_AGENT}), *osworlds])


def available_environments() -> dict[str, str | None]:
    """Returns every environment's name with None, or with a sentence why this machine cannot serve it."""
    return {name: reason_against(name) for name in known_environments()}


def served_queues() -> list[str]:
    """Returns the queues of the environments that this machine can serve."""
    return sorted({environment(name).queue for name, reason in available_environments().items() if reason is None})


def unknown_queues(queues: Iterable[str]) -> dict[str, str]:
    """Returns the queues whose names begin with ``rollout`` and that no environment has, each with a hint.

    The queue of an environment that cannot be loaded here is taken to be named after it.
    """
    suspects = [queue for queue in queues if queue.startswith("rollout")]
    known = {_queue_of(name) for name in known_environments()} if suspects else set()
    hints = {}
    for queue in suspects:
        if queue not in known:
            close = get_close_matches(queue, known, n=1, cutoff=0.85)  # they all begin alike
            hints[queue] = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(known))}"
    return hints


def _queue_of(name: str) -> str:
    try:
        return environment(name).queue
    except UserError:
        return f"rollout.{name}"


def reason_against(name: str) -> str | None:
    """Returns a sentence why this machine cannot serve an environment; None if it can."""
    try:
        environment(name).check_available()
    except (UserError, RuntimeError) as error:
        return str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the border to environments: the others are served)
        return f"environment {name!r}: check_available: {type(error).__name__}: {error}"
    return None


@contextmanager
def calling(name: str, method: str) -> Iterator[None]:
    """Turns plain errors of an environment's class method into a sentence that names both.

    Raises:
        UserError: In place of any `Exception` raised inside, except those that are sentences already.
    """
    from vm_pool.errors import PoolError  # here, because its package imports Redis's client

    try:
        yield
    except (UserError, BenchmarkError, PoolError):
        raise
    except Exception as error:
        raise UserError(f"environment {name!r}: {method}: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=64)
def load(group: str, kind: str, name: str, contract: type) -> Any:
    """Returns the class that a package offers under a name.

    Args:
        group: The entry points' group.
        kind: What it is, for messages.
        name: Its name.
        contract: The protocol that it must keep.

    Raises:
        UserError: No package offers that name, it cannot be imported, or it breaks its contract.
    """
    offered = _offered(group)
    point = offered.get(name)
    if point is None:
        close = get_close_matches(name, offered, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UserError(f"unknown {kind} {name!r}: {hint}known: {', '.join(sorted(offered)) or 'none'}")
    # Here, because the package takes time and many commands load nothing.
    from vm_pool.contracts import check_class, reason

    try:
        found = point.load()
        check_class(found, contract)
    except (Exception, SystemExit) as error:
        raise UserError(f"{kind} {name!r} cannot be loaded from {point.value}: {reason(error)}") from error
    return found


@lru_cache(maxsize=2)
def _offered(group: str) -> dict[str, EntryPoint]:
    offered: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        earlier = offered.setdefault(point.name, point)
        if earlier.value != point.value:
            raise UserError(f"two packages offer {group} {point.name!r}: {earlier.value} and {point.value}")
    return offered
