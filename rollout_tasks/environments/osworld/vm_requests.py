"""What items ask of their VM besides the run's options (a snapshot, a proxy, a fixed IP address), and do not get."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from vm_pool.providers.base import option_names

PROXY_VARIABLE = "PROXY_CONFIG_FILE"
"""Names the file from which desktop-env reads its proxies, with their secrets; without it, tasks have no proxy."""
SNAPSHOT_OPTION = "snapshot_name"
"""The option for the snapshot to start from, of providers whose VMs have snapshots by name."""


def own_snapshot(item: Item) -> str | None:
    """Returns the snapshot that an item's ``env_config`` names instead of the run's.

    A task file's own ``snapshot`` (chrome, gimp, os, ...) does not count: it names a group of tasks. OSWorld never
    reverts to it, and its images do not have it.
    """
    name = item.env_config.get("snapshot")
    return name if isinstance(name, str) and name != item.metadata.get("snapshot") else None


def wants_proxy(task: Mapping[str, Any]) -> bool:
    """Returns whether a task's browser is to go through a proxy, and this worker has any."""
    return bool(task["proxy"]) and bool(os.environ.get(PROXY_VARIABLE))


def unmet(config: RunConfig, items: Iterable[Item], tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns sentences on what the items ask for and do not get, or get only if workers are configured for it."""
    snapshots = sum(own_snapshot(item) is not None for item in items)
    tasks = list(tasks)
    proxies, addresses = (sum(bool(task[name]) for task in tasks) for name in ("proxy", "fixed_ip"))
    said = []
    if snapshots and (why := _no_snapshots(config)):
        said.append(f"{_items(snapshots, 'names', 'name')} a snapshot in env_config and will not get it: {why}")
    if proxies:
        said.append(
            f"{_items(proxies, 'asks', 'ask')} for a proxy: used by workers whose environment has {PROXY_VARIABLE},"
            " else they go without"
        )
    if addresses:
        said.append(
            f"{_items(addresses, 'asks', 'ask')} for a fixed IP address: no provider gives one; VMs keep their own"
        )
    return said


def _no_snapshots(config: RunConfig) -> str:
    """Returns why VMs cannot start from a snapshot that the item chooses; empty if they can."""
    if config.vm.use_pool:
        return "a pool's VMs are reset to the snapshot of their host (--no-pool gives every rollout a VM of its own)"
    if SNAPSHOT_OPTION not in option_names(config.vm.provider_name):
        return f"VMs of the provider {config.vm.provider_name} have no snapshots by name"
    return ""


def _items(count: int, one: str, several: str) -> str:
    return f"1 item {one}" if count == 1 else f"{count} items {several}"
