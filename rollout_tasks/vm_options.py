"""Makes the provider of a run's VMs: the options it gets, and what is wrong with them in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from rollout_tasks.config import RunConfig
from rollout_tasks.validation_messages import clause, location_of
from vm_pool.errors import ProviderError
from vm_pool.providers import Provider, load_provider
from vm_pool.providers.base import option_names


def open_provider(name: str, options: Mapping[str, Any]) -> Provider:
    """Finds a provider and creates it.

    Args:
        name: Its name among the installed ones.
        options: The provider's own options.

    Raises:
        ProviderError: It is not installed, cannot be imported, or does not accept an option, which is named.
    """
    try:
        return load_provider(name, options)
    except ProviderError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        first = error.__cause__.errors()[0]
        what = f"{'.'.join(map(str, location_of(first, options)))}: {clause(first, tuple(option_names(name)))}"
        raise ProviderError(f"VM provider {name!r} does not accept its options: {what}") from error


def provider_options(config: RunConfig, *, snapshot: str | None = None) -> dict[str, Any]:
    """Returns the options given for the provider, and those of the run that the provider also has.

    Args:
        config: The run's configuration.
        snapshot: What a VM starts from in place of the run's snapshot, if its provider has snapshots by name.

    Raises:
        ProviderError: The provider does not exist.
    """
    vm, desktop = config.vm, config.desktop
    run_options = {
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
    known = {name: value for name, value in run_options.items() if name in understood and value is not None}
    return known | vm.provider_options | chosen
