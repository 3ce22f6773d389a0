"""What a run's configuration asks of its VMs, as options of its provider."""

from __future__ import annotations

from typing import Any

from rollout_tasks.config import RunConfig
from vm_pool.providers.base import option_names


def provider_options(config: RunConfig) -> dict[str, Any]:
    """The options given for the provider, and those of the run's own that the provider has, too.

    Raises:
        ProviderError: There is no such provider.
    """
    vm, desktop = config.vm, config.desktop
    own = {
        "path_to_vm": vm.path_to_vm,
        "region": vm.region,
        "snapshot_name": vm.snapshot_name,
        "screen_width": desktop.screen_width,
        "screen_height": desktop.screen_height,
        "headless": desktop.headless,
        "os_type": desktop.os_type,
        "client_password": desktop.client_password,
    }
    understood = option_names(vm.provider_name)
    return {
        name: value for name, value in own.items() if name in understood and value is not None
    } | vm.provider_options
