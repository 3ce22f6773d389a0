"""The files of keepers: records of the VMs that they hold, which outlast a killed host, and locks of their processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from desktop_image.cache_folder import user_cache_folder
from vm_pool.lua_scripts import checked_vm_id


def state_folder(provider: str) -> Path:
    """Returns the working folder of a provider's keepers, which also has desktop-env's downloads and notes."""
    return user_cache_folder() / "desktop-env" / provider


def record_of(provider: str, vm_id: str) -> Path:
    """Returns the file that says which VM a keeper holds; it is deleted when the VM is stopped.

    Raises:
        ValueError: The VM's id is not valid.
    """
    return state_folder(provider) / "vms" / f"{checked_vm_id(vm_id)}.json"


def write_record(record: Path, request: Mapping[str, Any]) -> None:
    """Writes a VM's record, or replaces it: whoever reads it sees the whole of one or the other."""
    partial = record.with_suffix(".new")
    partial.write_text(json.dumps(request))
    partial.rename(record)


def lock_of(provider: str, vm_id: str) -> Path:
    """Returns the file that is locked by the process whose keeper holds a VM, as long as that process lives."""
    return state_folder(provider) / "held" / checked_vm_id(vm_id)


def reaping_lock(provider: str) -> Path:
    """Returns the file that is locked by the process that is ending VMs of dead ones, which may take minutes for each."""
    return state_folder(provider) / "reaping.lock"


def recorded(provider: str) -> list[str]:
    """Returns the ids of all VMs that have a record."""
    with suppress(FileNotFoundError):
        records = (state_folder(provider) / "vms").iterdir()
        return sorted(record.stem for record in records if record.suffix == ".json")
    return []


def leftovers(provider: str, host_id: str) -> list[str]:
    """Returns the ids of the host's VMs, ``<host>-<number>``, that have a record."""
    return [vm_id for vm_id in recorded(provider) if vm_id.rpartition("-")[0] == host_id]
