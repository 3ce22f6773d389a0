"""Checks before anything is enqueued, so that a mistake fails once and not in 1,428 rollouts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from benchmark.metrics import metric, reference_problem
from rollout_tasks import registry
from rollout_tasks.agents.osworld.constructor import check_options
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import ItemUnsupported
from rollout_tasks.errors import UserError
from rollout_tasks.runs.agent_profile import default_profile_name
from rollout_tasks.runs.counting import Counting, silently

if TYPE_CHECKING:
    import redis

SIMULATED_PROVIDER = "simulated"


_NOWHERE: Mapping[str, str] = {}


def check_names(config: RunConfig, items: Iterable[Item], places: Mapping[str, str] = _NOWHERE) -> set[str]:
    """Checks every name in the configuration against what exists here.

    Args:
        config: The run's configuration.
        items: Its items.
        places: Where items are from, by id, as far as that is known.

    Returns:
        The environments that the items run in.

    Raises:
        UserError: Unknown environment, agent or metric, or an agent that cannot act in an environment; names the option or
            the item.
    """
    check_metric(config.metric)
    if config.agent is not None:
        _look_up("--agent", registry.agent, config.agent)
    _check_agent_options(config)
    if config.env_mode != RunConfig.model_fields["env_mode"].default:
        _look_up("--env-mode", registry.environment, config.env_mode)
    names: set[str] = set()
    for item in items:
        name = item.env_config.get("env_mode", config.env_mode)
        if not isinstance(name, str):
            raise UserError(f"{_named(item, places)}: env_config.env_mode must be text, got {name!r}")
        if name not in names:
            place = f"{_named(item, places)}: env_config.env_mode" if "env_mode" in item.env_config else "--env-mode"
            _look_up(place, registry.environment, name)
            names.add(name)
            _check_acts_there(config, name)
    return names


def _check_acts_there(config: RunConfig, environment: str) -> None:
    """Checks that an agent that needs a desktop has one, and that all environments' own agents have the same profile."""
    agent = config.agent
    on_desktops = config.profile is not None or (
        agent is not None and getattr(registry.agent(agent), "needs_desktop", False)
    )
    if on_desktops and not registry.environment(environment).needs_desktop:
        agent = (config.profile or {}).get("name", agent)
        raise UserError(f"--agent: {agent} acts on desktops, which --env-mode {environment} does not have")
    if config.agent is None and default_profile_name(environment) != (config.profile or {}).get("name"):
        raise UserError(
            f"--env-mode {config.env_mode}: its own agent has another profile than that of {environment}, where items run:"
            " name an agent for all (--agent), or make two runs"
        )


def _check_agent_options(config: RunConfig) -> None:
    """Checks the options for the agent: only OSWorld's own take any."""
    kind = getattr(registry.agent(config.agent), "agent_class", None) if config.agent is not None else None
    if kind is not None:
        check_options(kind, config)
    elif config.agent_options:
        raise UserError(
            f"--agent-options: only OSWorld's own agents (--agent {registry.OSWORLD_AGENT}CLASS) take options"
        )


def _named(item: Item, places: Mapping[str, str]) -> str:
    """Returns the beginning of a sentence about an item."""
    place = places.get(item.id)
    return f"{place}: item {item.id!r}" if place else f"item {item.id!r}"


def check_items(
    config: RunConfig, items: Sequence[Item], places: Mapping[str, str] = _NOWHERE, count: Counting = silently
) -> tuple[list[Item], list[str]]:
    """Has each item checked by its environment.

    Args:
        config: The run's configuration.
        items: Its items.
        places: Where items are from, by id, as far as that is known.
        count: Shows how many are checked.

    Returns:
        The valid items, and a sentence for each other one: items that nothing here can set up or score and, with
        `skip_invalid`, wrong ones.

    Raises:
        UserError: An item is wrong and may not be left out, or no item is valid.
    """
    right: list[Item] = []
    wrong: list[str] = []
    for item in count("checking items", items):
        name = registry.environment_name(item, config)
        try:
            environment = registry.environment(name)
            _check_item(name, config, item, places)
            if config.evaluate_results and environment.compares_answers:
                check_reference(config.metric, item.answer)
        except ValueError as error:
            wrong.append(f"{_named(item, places)}: {error}")
            if not (config.data.skip_invalid or isinstance(error, ItemUnsupported)):
                raise UserError(wrong[-1]) from error
        else:
            right.append(item)
    if not right:
        raise UserError(f"none of the {len(items)} items is valid, the first because: {wrong[0]}")
    return right, wrong


def _check_item(name: str, config: RunConfig, item: Item, places: Mapping[str, str]) -> None:
    """Has an item checked; a `ValueError` says what is wrong with the item, anything else is the check's own defect."""
    try:
        registry.environment(name).check_item(config, item)
    except (ValueError, UserError):
        raise
    except Exception as error:
        why = f"environment {name!r}: check_item: {type(error).__name__}: {error}"
        raise UserError(f"{_named(item, places)}: {why}") from error


def check_runs(config: RunConfig, environments: Iterable[str], say: Callable[[str], None]) -> None:
    """Has each environment check, and make, what all its items share.

    Args:
        config: The run's configuration.
        environments: Those that its items run in.
        say: Takes a sentence for whoever waits, now and then.

    Raises:
        UserError: An option is wrong, or what it names.
    """
    for name in sorted(environments):
        with registry.calling(name, "check_run"):
            registry.environment(name).check_run(config, say)


def check_reference(metric_name: str, answer: str) -> None:
    """Checks that a metric can compare answers with an item's reference answer.

    Raises:
        ValueError: It cannot.
    """
    problem = reference_problem(metric_name, answer)
    if problem:
        raise ValueError(f"{problem}; --no-evaluate-results rolls out without scores")


def needs(config: RunConfig, items: Sequence[Item]) -> dict[str, dict[str, Any]]:
    """Returns what the items need besides this project, by environment; environments without needs are left out."""
    said: dict[str, dict[str, Any]] = {}
    for name, group in _by_environment(config, items).items():
        with registry.calling(name, "needs"):
            said[name] = dict(registry.environment(name).needs(config, group))
    return {name: value for name, value in said.items() if value}


def unmet(config: RunConfig, items: Sequence[Item]) -> list[str]:
    """Returns sentences about what items ask for and will not get in this run."""
    said: list[str] = []
    for name, group in _by_environment(config, items).items():
        with registry.calling(name, "unmet"):
            said += registry.environment(name).unmet(config, group)
    return said


def _by_environment(config: RunConfig, items: Iterable[Item]) -> dict[str, list[Item]]:
    grouped: dict[str, list[Item]] = {}
    for item in items:
        grouped.setdefault(registry.environment_name(item, config), []).append(item)
    return grouped


def check_metric(name: str) -> None:
    """Checks that a metric exists.

    Raises:
        UserError: It does not exist, or cannot be imported.
    """
    try:
        metric(name)
    except BenchmarkError as error:
        raise UserError(f"--metric: {error}") from error


def _look_up(place: str, find: Any, name: str) -> None:
    try:
        find(name)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error


def check_here(config: RunConfig, items: Iterable[Item], environments: Iterable[str]) -> None:
    """Checks that this machine alone can do what the items need.

    Raises:
        UserError: It cannot serve an environment, or cannot run the VMs.
    """
    for name in sorted(environments):
        if reason := registry.reason_against(name):
            raise UserError(f"--env-mode {name}: {reason}")
    if needs_vm(config, items):
        from rollout_tasks.vm_options import open_provider, provider_options  # here, because they import Redis's client
        from vm_pool.errors import ProviderError
        from vm_pool.providers import check_available

        try:
            check_available(open_provider(config.vm.provider_name, provider_options(config)))
        except ProviderError as error:
            raise UserError(f"--provider-name: {error}") from error
        check_provider(config, environments)


def check_provider(config: RunConfig, environments: Iterable[str]) -> None:
    """Checks that the run's provider has what the environments need.

    Raises:
        UserError: They need desktops and it has none, or it cannot give its VMs the requested network.
    """
    from vm_pool.providers.base import option_names  # here, as in check_here

    if config.vm.guest_network != "none" and "guest_network" not in option_names(config.vm.provider_name):
        raise UserError(
            f"--guest-network: VMs of the provider {config.vm.provider_name} have whatever network it gives them;"
            " those of the providers local and qemu have the network that is asked for"
        )
    for name in sorted(environments):
        if registry.environment(name).needs_desktop and config.vm.provider_name == SIMULATED_PROVIDER:
            raise UserError(
                f"--provider-name: simulated VMs have no desktop, which --env-mode {name} needs:"
                " take local, qemu, or another one (rollouts vm-host --help lists them)"
            )


def needs_model(config: RunConfig, environments: Iterable[str]) -> bool:
    """Whether any rollout of the run, or its metric, asks a model."""
    agents = {config.agent or registry.environment(name).default_agent for name in environments}
    return config.metric == "llm_judgement" or any(registry.agent(agent).needs_model for agent in agents)


def needs_desktop(config: RunConfig, item: Item) -> bool:
    """Whether an item's environment connects to desktops."""
    return registry.environment(registry.environment_name(item, config)).needs_desktop


def needs_vm(config: RunConfig, items: Iterable[Item]) -> bool:
    """Whether any rollout of the run needs a VM."""
    return any(_needs_vm(registry.environment_name(item, config), config, item) for item in items)


def _needs_vm(name: str, config: RunConfig, item: Item) -> bool:
    with registry.calling(name, "needs_vm_for"):
        return registry.environment(name).needs_vm_for(config, item)


def check_pool(config: RunConfig, client: redis.Redis) -> None:
    """Checks that the pool has VMs.

    Raises:
        UserError: The pool has none, or all are drained, or the run asks for a network, which only the pool's hosts can set.
    """
    from rollout_tasks.runs.waits import none_in_service  # here, because they import Redis's client
    from vm_pool.pool import VMPool
    from vm_pool.states import VMState

    if not config.vm.use_pool:
        return
    if config.vm.guest_network != "none":
        raise UserError(
            "--guest-network: a pool's VM hosts set what its VMs may reach (rollouts vm-host -o guest_network=internet);"
            " leave it out, or take --no-pool"
        )
    status = VMPool(client, config.vm.pool).status()
    if any(vm.state != VMState.STOPPED and not vm.drained for vm in status.vms):
        return
    if status.vms:
        raise UserError(f"--pool: {none_in_service(status)}")
    raise UserError(
        f"--pool: the pool {config.vm.pool!r} has no VMs; start some with"
        f" `celery -A rollout_tasks worker --num-vms 3 --provider {config.vm.provider_name}` or `rollouts vm-host`"
    )


def check_output_dir(folder: Path) -> None:
    """Checks that a run's folder can be made, without making it.

    Raises:
        UserError: It exists, or its parent is not a folder or cannot be written to.
    """
    if folder.exists():
        raise UserError(f"--run-id: {folder} exists already; take another name, or continue it with rollouts resume")
    above = next(path for path in folder.parents if os.path.lexists(path))
    if not above.is_dir():
        raise UserError(f"--output-dir: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"--output-dir: {above} cannot be written to")
