"""The folders of running desktops on this machine, and how to end abandoned desktops."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path

from vm_pool.lua_scripts import checked_vm_id
from vm_pool.processes import is_stopped
from vm_pool.providers.folder_lock import abandoned, check_unused
from vm_pool.providers.local import cgroups
from vm_pool.providers.local.keeper_process import END_SECONDS, end_keeper, keepers_below, keepers_of

log = logging.getLogger(__name__)

STATE_FOLDER = Path("/run/computer-use-rollouts/desktops")
"""The folders of running desktops, each named after its VM. Removed, with its parent, after the last desktop."""


def folder_of(vm_id: str) -> Path:
    """Returns a desktop's folder, which exists exactly as long as anything of the desktop may.

    Raises:
        ValueError: The VM's id is not valid.
    """
    if checked_vm_id(vm_id) in {".", ".."}:
        raise ValueError(f"{vm_id!r} is not a VM's id")
    return STATE_FOLDER / vm_id


def end_leftover(vm_id: str) -> bool:
    """Ends a desktop that an earlier process started, if it still exists; returns whether it did.

    Raises:
        VMsInUse: Another living process uses it.
    """
    if not folder_of(vm_id).exists():
        return False
    check_unused(folder_of(vm_id))
    _end(vm_id)
    return True


def _end(vm_id: str) -> None:
    """Ends a desktop that nobody else uses."""
    folder = folder_of(vm_id)
    cgroups.thaw(vm_id)
    for pid in keepers_of(folder):
        end_keeper(pid)
    remove_traces(vm_id)


def leftovers(host_id: str) -> list[str]:
    """Returns the ids of the host's VMs, ``<host>-<number>``, that have a folder."""
    with suppress(FileNotFoundError):
        return sorted(folder.name for folder in STATE_FOLDER.iterdir() if folder.name.rpartition("-")[0] == host_id)
    return []


def end_abandoned() -> list[str]:
    """Ends leftovers of desktops whose processes have all ended, of any host; returns their VMs' ids."""
    ended: list[str] = []
    for folder in abandoned(STATE_FOLDER):
        keepers = list(keepers_of(folder))
        # Otherwise it may still end by itself, or its host may not hold folders yet.
        if not keepers or any(map(is_stopped, keepers)):
            try:
                _end(folder.name)
            except (ValueError, TimeoutError) as error:
                log.warning("a desktop that nobody uses any more stays: %s", error)
            else:
                ended.append(folder.name)
    return ended


def end_stopped_keepers() -> None:
    """Ends keepers without a folder that are stopped: a process that stopped them, to kill them, was killed before it did."""
    for pid, folder in keepers_below(STATE_FOLDER):
        if is_stopped(pid) and not folder.exists():
            try:
                end_keeper(pid)
            except TimeoutError as error:
                log.warning("a process of a desktop that has ended stays: %s", error)
            _remove_empty_parents()  # which its child may have been about to do


def remove_traces(vm_id: str) -> None:
    """Removes an ended desktop's cgroup, then its folder; also removes the parent folders after the last desktop."""
    cgroups.remove(vm_id, END_SECONDS)
    shutil.rmtree(folder_of(vm_id), ignore_errors=True)
    _remove_empty_parents()


def _remove_empty_parents() -> None:
    with suppress(OSError):  # other desktops' folders are in them
        for above in (STATE_FOLDER, STATE_FOLDER.parent):
            above.rmdir()
