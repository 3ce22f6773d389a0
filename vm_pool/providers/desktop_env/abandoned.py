"""Ending VMs whose keeper and owner were both killed, such as those of a run without a pool: no host of their name starts again."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from desktop_image.locks import hold_file
from vm_pool.processes import command_lines
from vm_pool.providers.desktop_env.keeper_client import PROGRAM, environment_of_keepers
from vm_pool.providers.desktop_env.keeper_files import lock_of, record_of, state_folder
from vm_pool.providers.folder_lock import still_holds
from vm_pool.providers.program_output import ending

log = logging.getLogger(__name__)


def end_abandoned(provider: str, vm_ids: Iterable[str], seconds: float) -> list[str]:
    """Ends those of the VMs that this machine made and no process holds; logs those that cannot be ended.

    Args:
        provider: The provider's name.
        vm_ids: VMs that have a record.
        seconds: How long each may take.

    Returns:
        The ids of those that were ended.
    """
    ended: list[str] = []
    for vm_id in vm_ids:
        record = record_of(provider, vm_id)
        lock_file = lock_of(provider, vm_id)
        lock = hold_file(lock_file) if _is_of_this_machine(record) else None
        if lock is None:
            continue
        try:
            if any(PROGRAM in words and str(record) in words for _pid, words in command_lines()):
                continue  # its keeper may still end it
            if not record.exists():  # it just has
                continue
            why = _stop(provider, record, seconds)
        finally:
            if still_holds(lock, lock_file):
                lock_file.unlink()
            os.close(lock)
        if record.exists():
            log.warning("%s that nobody uses any more stays: %s", vm_id, why)
        else:
            ended.append(vm_id)
    return ended


def _is_of_this_machine(record: Path) -> bool:
    """Whether a VM was made by this machine: others may have the same home, on a file system that does not show them locks."""
    with suppress(OSError, ValueError, AttributeError):
        return bool(json.loads(record.read_text()).get("machine") == socket.gethostname())
    return False


def _stop(provider: str, record: Path, seconds: float) -> str:
    """Lets a new keeper stop a VM as its record says; returns the keeper's last words."""
    command = [sys.executable, "-P", "-m", PROGRAM, "stop", str(record)]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=state_folder(provider),
            env=environment_of_keepers(),
            start_new_session=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"stopping it took more than {seconds:.0f} s"
    return ending(done.stdout, 1)
