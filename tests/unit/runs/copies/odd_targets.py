"""Folders at URLs that fail or kill at a chosen step: fsspec's own file system with one change. And what readers find there."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from rollout_tasks.runs.copies.manifest import Manifest, parsed, unit_of

STEPS = ("pipe_file", "put_file", "mv", "rm_file")
"""What changes a target."""
Plan = Callable[[str, str, str], None]
_lock = threading.Lock()
_plan: list[Plan] = []


class PlannedFiles(LocalFileSystem):  # type: ignore[misc]
    """A folder of this machine; before and after each change, a plan is asked."""

    protocol = ("planned", "file")

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        if isinstance(path, str):
            path = path.removeprefix("planned://").removeprefix("objects://")
        stripped: str = super()._strip_protocol(path)
        return stripped

    def pipe_file(self, path: str, value: bytes, *arguments: Any, **more: Any) -> None:
        asked("before", "pipe_file", path)
        if "file" in self.protocol:  # else the object is there whole or not at all
            super().pipe_file(path, value[: len(value) // 2], *arguments, **more)
            asked("amid", "pipe_file", path)
        super().pipe_file(path, value, *arguments, **more)
        asked("after", "pipe_file", path)

    def put_file(self, path1: str, path2: str, *arguments: Any, **more: Any) -> None:
        asked("before", "put_file", path2)
        super().put_file(path1, path2, *arguments, **more)
        asked("after", "put_file", path2)

    def mv(self, path1: str, path2: str, *arguments: Any, **more: Any) -> None:
        asked("before", "mv", path2)
        super().mv(path1, path2, *arguments, **more)
        asked("after", "mv", path2)

    def rm_file(self, path: str) -> None:
        asked("before", "rm_file", path)
        super().rm_file(path)
        asked("after", "rm_file", path)

    def cat_file(self, path: str, *arguments: Any, **more: Any) -> Any:
        asked("before", "cat_file", path)
        return super().cat_file(path, *arguments, **more)

    def find(self, path: str, *arguments: Any, **more: Any) -> Any:
        asked("before", "find", path)
        return super().find(path, *arguments, **more)


class PlannedObjects(PlannedFiles):
    """The same as an object store has it: an object's name is there with its content, and folders need not be made."""

    protocol = "objects"

    def __init__(self, **more: Any) -> None:
        super().__init__(auto_mkdir=True, **more)

    def pipe_file(self, path: str, value: bytes, *arguments: Any, **more: Any) -> None:
        self.makedirs(self._parent(path), exist_ok=True)
        super().pipe_file(path, value, *arguments, **more)


fsspec.register_implementation("planned", PlannedFiles, clobber=True)
fsspec.register_implementation("objects", PlannedObjects, clobber=True)


def asked(when: str, step: str, path: str) -> None:
    with _lock:
        for plan in _plan:
            plan(when, step, path)


def follow_plan(plan: Plan | None) -> None:
    """Has a plan asked from now on; None for no plan."""
    _plan[:] = [plan] if plan else []


class Counted:
    """A plan that does something at the n-th point, from 0, and counts them."""

    def __init__(self, at: int | None = None, act: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._at = at
        self._act = act

    def __call__(self, _when: str, step: str, _path: str) -> None:
        if step not in STEPS:
            return
        self.count += 1
        if self._at == self.count - 1:
            self._act()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def manifests(target: Path) -> dict[str, Manifest]:
    found = {}
    for path in target.rglob("*.json"):
        if unit := unit_of(path.relative_to(target).as_posix()):
            found[unit] = parsed(unit, path.read_bytes())
    return found


def broken_promises(target: Path) -> list[str]:
    """Which complete units of a copy lack a file, or have another one."""
    return [
        f"{unit}: {name}"
        for unit, manifest in manifests(target).items()
        if manifest.complete
        for name, facts in manifest.known.items()
        if not (target / name).is_file() or hashlib.sha256((target / name).read_bytes()).hexdigest() != facts.sha256
    ]


def tree(folder: Path) -> dict[str, bytes]:
    """Each file of a folder, hidden ones included."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
