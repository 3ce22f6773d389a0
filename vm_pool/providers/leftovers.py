"""Ending what an earlier process left: one VM that stays prevents neither the end of others nor the start of a host."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from vm_pool.errors import VMsInUse
from vm_pool.providers import folder_lock

_LOOK_SECONDS = 0.2
log = logging.getLogger(__name__)


def end_each(vm_ids: Iterable[str], end: Callable[[str], object]) -> list[str]:
    """Ends leftovers; logs those that cannot be ended.

    Args:
        vm_ids: Of VMs that an earlier process may have left.
        end: Ends one; returns False if there was nothing of it.

    Returns:
        The ids of those that were ended.

    Raises:
        VMsInUse: A living process uses one.
    """
    ended: list[str] = []
    for vm_id in vm_ids:
        try:
            if _end_once_unused(vm_id, end) is not False:
                ended.append(vm_id)
        except VMsInUse:
            raise
        except Exception as error:  # noqa: BLE001 (a cloud or a kernel refuses in many ways; its next boot reports it again)
            log.warning("%s of an earlier process stays: %s", vm_id, error)
    return ended


def _end_once_unused(vm_id: str, end: Callable[[str], object]) -> object:
    """Tries again for a while where another process uses a VM: it may be ending the same leftover."""
    deadline = time.monotonic() + folder_lock.LET_GO_SECONDS
    while True:
        try:
            return end(vm_id)
        except VMsInUse:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_SECONDS)
