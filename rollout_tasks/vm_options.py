"""Turns a run's configuration into options of its VMs' provider."""

from __future__ import annotations

from typing import Any

from rollout_tasks.config import RunConfig
from vm_pool.providers.base import option_names


def provider_options(config: RunConfig, *, snapshot: str | None = None) -> dict[str, Any]:
    """Returns the options given for the provider, and those of the run that the provider also has.

    Args:
        config: The run's configuration.
        snapshot: What a VM starts from in place of the run's snapshot, if its provider has snapshots by name.

    Raises:
        ProviderError: The provider does not exist.
    """
    vm, desktop = config.vm, config.desktop
    own = {
        "path_to_vm": vm.path_to_vm,
        "region": vm.region,
        "snapshot_name": vm.snapshot_name,
        "guest_network": vm.guest_network,
        "screen_width": desktop.screen_width,
        "screen_height": desktop.screen_height,
        "headless": desktop.headless,
        "os_type": desktop.os_type,
        "client_password": desktop.client_password,
    }
    understood = option_names(vm.provider_name)
    chosen = {"snapshot_name": snapshot} if snapshot is not None and "snapshot_name" in understood else {}
    known = {name: value for name, value in own.items() if name in understood and value is not None}
    return known | vm.provider_options | chosen
