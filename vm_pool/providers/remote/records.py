"""What was lent to the VMs of a host, in a folder for each VM, which outlasts a killed host.

A folder is locked by the process that uses the VM. `emulator.json` in it says what to give back.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from desktop_image.cache_folder import user_cache_folder
from vm_pool.lua_scripts import checked_vm_id
from vm_pool.providers.folder_lock import check_unused, make_held

_NAME = "emulator.json"


def state_folder() -> Path:
    """Returns the folder of all records."""
    return user_cache_folder() / "remote"


def folder_of(vm_id: str) -> Path:
    """Returns a VM's folder.

    Raises:
        ValueError: The id is not valid.
    """
    if checked_vm_id(vm_id) in {".", ".."}:
        raise ValueError(f"{vm_id!r} is not a VM's id")
    return state_folder() / vm_id


class Record:
    """A VM's folder, held by this process."""

    def __init__(self, vm_id: str) -> None:
        """Makes and locks it; what an earlier process left in it stays until `forget`.

        Raises:
            OSError: It cannot be made, or another process holds it.
        """
        self._folder = folder_of(vm_id)
        self._held = make_held(self._folder, 0o700)

    def write(self, url: str, emulator_id: str) -> None:
        """Records what the VM is; an empty id is that of one which is being started. Readers see all of it or what was before."""
        partial = self._folder / f".{_NAME}.new"
        partial.write_text(json.dumps({"url": url, "emulator_id": emulator_id}), encoding="utf-8")
        partial.rename(self._folder / _NAME)

    def forget(self) -> None:
        """Removes the folder, after the emulator was given back; harmless when repeated."""
        if self._held >= 0:
            shutil.rmtree(self._folder, ignore_errors=True)
            self.close()

    def close(self) -> None:
        """Lets go of the folder, and leaves it; harmless when repeated."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def recorded(host_id: str) -> list[str]:
    """Returns the ids of a host's VMs, ``<host>-<number>``, that have a folder."""
    with suppress(FileNotFoundError):
        return sorted(path.name for path in state_folder().iterdir() if path.name.rpartition("-")[0] == host_id)
    return []


def left_in(vm_id: str) -> Iterator[tuple[str, str]]:
    """Yields the service's address and the emulator's id that a VM's folder names, if it does. The id may be empty.

    Raises:
        VMsInUse: A living process holds the folder.
    """
    folder = folder_of(vm_id)
    check_unused(folder)
    with suppress(OSError, ValueError, KeyError, TypeError):
        values = json.loads((folder / _NAME).read_bytes())
        yield str(values["url"]), str(values["emulator_id"])
