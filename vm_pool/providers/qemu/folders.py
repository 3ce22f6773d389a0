"""The folders of QEMU VMs: where each keeps its files, and how leftovers of a killed host are found."""

from __future__ import annotations

import logging
import os
import pwd
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from desktop_image.cache_folder import user_cache_folder
from vm_pool.lua_scripts import checked_vm_id
from vm_pool.processes import command_lines, kill
from vm_pool.providers.folder_lock import abandoned, check_unused, make_held

log = logging.getLogger(__name__)

END_SECONDS = 10.0
"""From SIGKILL to the end of a process."""


def state_folder() -> Path:
    """Returns the parent of this user's VM folders, each named after its VM. On disk: it stores the VMs' memory."""
    return user_cache_folder() / "qemu"


def folder_of(vm_id: str) -> Path:
    """Returns a VM's folder, which exists as long as anything of it may; its processes name it in their command lines.

    Raises:
        ValueError: The VM's id is not valid.
    """
    if checked_vm_id(vm_id) in {".", ".."}:
        raise ValueError(f"{vm_id!r} is not a VM's id")
    return state_folder() / vm_id


def make_folder(vm_id: str) -> tuple[Path, int]:
    """Makes a VM's empty folder, after ending and removing leftovers; returns it with the descriptor that holds it."""
    end_leftover(vm_id)
    folder = folder_of(vm_id)
    return folder, make_held(folder, 0o700)


def leftovers(host_id: str) -> list[str]:
    """Returns the ids of the host's VMs, ``<host>-<number>``, that have a folder."""
    with suppress(FileNotFoundError):
        return sorted(folder.name for folder in state_folder().iterdir() if folder.name.rpartition("-")[0] == host_id)
    return []


def end_abandoned() -> list[str]:
    """Ends leftovers of this user's VMs whose host and keeper have ended; returns their ids."""
    ended: list[str] = []
    for folder in abandoned(state_folder()):
        if not any(_is_keeper(words) for _pid, words in _naming(folder)):  # otherwise it may still end by itself
            try:
                end_held(folder.name)
            except (ValueError, TimeoutError) as error:
                log.warning("a VM that nobody uses any more stays: %s", error)
            else:
                ended.append(folder.name)
    return ended


def end_leftover(vm_id: str) -> bool:
    """Ends a VM's processes and removes its folder; returns whether the folder existed.

    Raises:
        VMsInUse: Another living process uses it.
    """
    folder = folder_of(vm_id)
    if not folder.exists():
        return False
    check_unused(folder)
    end_held(vm_id)
    return True


def end_held(vm_id: str) -> None:
    """Ends the processes of a VM whose folder this process holds, or nobody, and removes its folder."""
    folder = folder_of(vm_id)
    for pid in processes_of(folder):
        kill(pid, END_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: Path) -> Iterator[int]:
    """Yields this user's processes that name a VM's folder in their command lines."""
    return (pid for pid, _words in _naming(folder))


def _naming(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields keepers and QEMUs that name a VM's folder, and their command lines; also for other copies of this code."""
    mark = str(folder)
    switched = unprivileged()
    for pid, words in command_lines(*([switched.pw_uid] if switched is not None else [])):
        ours = "qemu" in words[0] or _is_keeper(words)
        if ours and any(word == mark or f"{mark}/" in word for word in words):
            yield pid, words


def unprivileged() -> pwd.struct_passwd | None:
    """Returns the user that root's QEMU switches to after its setup; None if it does not switch."""
    if os.geteuid() == 0:
        with suppress(KeyError):
            return pwd.getpwnam("nobody")
    return None


def _is_keeper(words: list[str]) -> bool:
    return words[0] == "sh" and any(word.endswith("/".join(KEEPER.parts[-2:])) for word in words[1:2])


KEEPER = Path(__file__).with_name("keeper.sh")
