"""What the children of a fork must not hold: connections and locks of the VMs that their parent has."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Holder(Protocol):
    """An object with connections or locks."""

    def let_go(self) -> None:
        """Closes this process's copies of them."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()


def release_in_children(holder: Holder) -> None:
    """Has each process that is forked from now on close what the object holds."""
    _holders.add(holder)


def _release_all() -> None:
    for holder in _holders:
        holder.let_go()


os.register_at_fork(after_in_child=_release_all)
