"""The folders of running desktops on this machine, and the ending of those that nobody looks after any more."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path

from vm_pool.providers.folder_lock import abandoned
from vm_pool.providers.local import cgroups
from vm_pool.providers.local.keeper_process import END_SECONDS, end_keeper, keepers_of
from vm_pool.scripts import checked_vm_id

log = logging.getLogger(__name__)

STATE_FOLDER = Path("/run/computer-use-rollouts/desktops")
"""Where the folders of running desktops are, each named after its VM. Goes, with the folder above it, with the last of them."""


def folder_of(vm_id: str) -> Path:
    """A desktop's folder, which exists exactly as long as anything of it may.

    Raises:
        ValueError: That is no VM's id.
    """
    if checked_vm_id(vm_id) in {".", ".."}:
        raise ValueError(f"{vm_id!r} is not a VM's id")
    return STATE_FOLDER / vm_id


def end_leftover(vm_id: str) -> bool:
    """Ends a desktop that an earlier process started, if it is still there; whether it was."""
    if not folder_of(vm_id).exists():
        return False
    for pid in keepers_of(folder_of(vm_id)):
        end_keeper(pid)
    remove_traces(vm_id)
    return True


def leftovers(host_id: str) -> list[str]:
    """The ids of the host's VMs, ``<host>-<number>``, that have a folder."""
    with suppress(FileNotFoundError):
        return sorted(folder.name for folder in STATE_FOLDER.iterdir() if folder.name.rpartition("-")[0] == host_id)
    return []


def end_abandoned() -> list[str]:
    """Ends what is left of desktops whose processes have all ended, of whichever host; returns their VMs' ids."""
    ended: list[str] = []
    for folder in abandoned(STATE_FOLDER):
        if not any(keepers_of(folder)):  # else it may still end by itself, or be of a host that holds no folders yet
            try:
                end_leftover(folder.name)
            except (ValueError, TimeoutError) as error:
                log.warning("a desktop that nobody uses any more stays: %s", error)
            else:
                ended.append(folder.name)
    return ended


def remove_traces(vm_id: str) -> None:
    """Removes the cgroup, then the folder, of a desktop whose keeper has ended; the folders above with the last desktop."""
    cgroups.remove(vm_id, END_SECONDS)
    folder = folder_of(vm_id)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # there are others
        for above in folder.parents[:2]:
            above.rmdir()
