"""The cache of finished parts of guest images; each part is built once.

A part is a folder named after the hash of everything it is made from. It is built beside its place under a temporary
name and renamed when complete, so that a folder with the right name is always whole. A file lock (NAME.lock) allows one
build of a part at a time; processes that waited use its result. The next build removes what a killed one left, when
all programs that it started have ended.

A process that asked for a part uses it until it ends: it holds a shared lock (NAME.used), and `remove` keeps the part.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from desktop_image import namespace
from desktop_image.build_locks import build_lock
from desktop_image.cache_folder import user_cache_folder
from desktop_image.errors import GuestBuildError
from desktop_image.locks import hold_file, locked

ProgressCallback = Callable[[str], None]
"""Called with a sentence for each step of a build."""

_WHY_CHARACTERS = 300
_BUILD_SECONDS = 4 * 3600.0
"""How long to wait for another process's build, which may be slow under emulation."""
_USE_SECONDS = 60.0
"""How long to wait for a process that removes a part."""
_STORAGE = frozenset({errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS})
"""Errors of the cache's folder or disk; all others come from what is being built."""
_LOOK_SECONDS = 0.5
"""How often the builder of a part is asked whether it still waits for another process."""
_PARTIAL = ".partial"
_WAITING = "Another process is building this image, or what a killed one started has not ended; waiting for it"


def guest_cache_folder() -> Path:
    """Returns the folder of the cache.

    Raises:
        OSError: This user has no home.
    """
    return user_cache_folder() / "guest"


def part(name: str, build: Callable[[Path], None], progress: ProgressCallback, *, as_root: bool = True) -> Path:
    """Returns a part's folder; builds it first if it is missing.

    Args:
        name: The folder's name; contains the hash of what it is made from.
        build: Creates the folder it is given, which must not exist.
        progress: Called again and again while another process is building the same part; may raise, to give up.
        as_root: Whether only root can build it.

    Raises:
        GuestBuildError: It cannot be built here.
        OSError: This user has no home.
    """
    finished = guest_cache_folder() / name
    _use(name)
    if finished.is_dir():
        return finished
    if as_root and os.geteuid() != 0:
        raise GuestBuildError(
            "building the image of containers needs root, because its files have other owners; the disk of virtual machines"
            " (--disk) does not"
        )
    try:
        guest_cache_folder().mkdir(parents=True, exist_ok=True)
        remove_dead_builds()
        with _lock(name, progress):
            if not finished.is_dir():
                partial = finished.with_name(name + _PARTIAL)
                _remove(partial)
                try:
                    build(partial)
                    partial.rename(finished)
                finally:
                    _remove(partial)
    except OSError as error:
        where = error.filename or guest_cache_folder()
        why = (
            error.strerror or str(error)[:_WHY_CHARACTERS]
        )  # errors of shutil.copytree have no number, but a list of failures
        what = "stored" if error.errno in _STORAGE else "built"
        raise GuestBuildError(f"the guest image cannot be {what}: {where}: {why}") from error
    return finished


def remove(name: str) -> bool:
    """Removes a part that no process uses or builds.

    Returns:
        Whether it was removed.

    Raises:
        GuestBuildError: It belongs to another user.
    """
    finished = guest_cache_folder() / name
    with _ours(_used_file(name)), locked(_used_file(name)) as alone:
        if not alone:
            return False
        with build_lock(_lock_file(name)) as idle:
            if not idle:
                return False
            if finished.is_dir():
                partial = finished.with_name(name + _PARTIAL)
                finished.rename(partial)  # A half-removed part must not have its name.
                _remove(partial)
            _lock_file(name).unlink()
        _used_file(name).unlink()
    return True


def discard(name: str) -> None:
    """Removes a part that is of no use, even while it is used; whoever needs it next makes it anew.

    A part that another process is making anew is left to it.
    """
    finished = guest_cache_folder() / name
    with build_lock(_lock_file(name)) as idle:
        if idle and finished.is_dir():
            partial = finished.with_name(name + _PARTIAL)
            _remove(partial)
            finished.rename(partial)  # as in `remove`
            _remove(partial)


def remove_dead_builds(found: Callable[[Path], None] = lambda _folder: None) -> None:
    """Removes the temporary folders that killed builds and removals left.

    Args:
        found: Called with each before it is removed.

    Raises:
        GuestBuildError: They belong to another user.
    """
    for partial in sorted(guest_cache_folder().glob(f"*{_PARTIAL}")):
        lock = _lock_file(partial.name.removesuffix(_PARTIAL))
        with _ours(partial), build_lock(lock) as idle:
            if idle and partial.is_dir():
                found(partial)
                _remove(partial)


def is_used(name: str) -> bool:
    """Whether a process uses a part.

    Raises:
        GuestBuildError: It belongs to another user.
    """
    path = _used_file(name)
    if not path.exists():
        return False
    with _ours(path), locked(path) as alone:
        return not alone


@contextmanager
def _ours(path: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise GuestBuildError(
            f"{path.parent} belongs to another user; only that user can delete its contents"
        ) from error


_used: dict[Path, int] = {}
"""The open lock files of the parts that this process, or the one it was forked from, uses."""


def _use(name: str) -> None:
    """Marks a part as used by this process; in another user's cache this may fail, but only that user removes parts."""
    path = _used_file(name)
    if path not in _used:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = hold_file(path, seconds=_USE_SECONDS, shared=True)
            if descriptor is not None:
                _used[path] = descriptor


@contextmanager
def _lock(name: str, progress: ProgressCallback) -> Iterator[None]:
    deadline = time.monotonic() + _BUILD_SECONDS
    while True:
        with build_lock(_lock_file(name), seconds=_LOOK_SECONDS) as got:
            if got:
                yield
                return
        if time.monotonic() > deadline:
            raise GuestBuildError(f"another process has been building this image for {_BUILD_SECONDS / 3600:.0f} hours")
        progress(_WAITING)  # a caller that is to stop raises here


def _lock_file(name: str) -> Path:
    return guest_cache_folder() / f"{name}.lock"


def _used_file(name: str) -> Path:
    return guest_cache_folder() / f"{name}.used"


def _remove(folder: Path) -> None:
    if not folder.is_dir():
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:  # Not root: some files belong to ids that the user has only in a user namespace.
        if os.geteuid() == 0:
            raise
        namespace.run(["rm", "-r", "-f", str(folder)])
        if folder.is_dir():
            raise
