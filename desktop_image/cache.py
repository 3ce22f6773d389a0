"""Where finished parts of guest images are kept, each built once.

A part is a folder named after the hash of everything it is made from. It is built beside its place under a temporary name and
renamed when complete, so that a folder with the right name is always whole. A file lock (NAME.lock) lets one build go on at a time
for each part; whoever waited finds it built. Whatever a killed build left is removed by the next one.

Whoever asked for a part uses it until his process ends: so long he holds a shared lock (NAME.used), and `remove` leaves it alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from desktop_image import namespace
from desktop_image.errors import GuestBuildError

Progress = Callable[[str], None]
"""Called with a sentence for whatever a build does next."""

_WHY_CHARACTERS = 300
_PARTIAL = ".partial"


def cache_folder() -> Path:
    """Where images are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "computer-use-rollouts" / "guest"


def part(name: str, build: Callable[[Path], None], progress: Progress, *, as_root: bool = True) -> Path:
    """A part's folder, built first where it is missing.

    Args:
        name: Of the folder; holds the hash of what it is made from.
        build: Makes the folder that it is given, which is not there.
        progress: Told when another process is building the same part.
        as_root: Whether only root can build it.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    finished = cache_folder() / name
    _use(name)
    if finished.is_dir():
        return finished
    if as_root and os.geteuid() != 0:
        raise GuestBuildError(
            "building the image of containers needs root, for its files have other owners; the disk of virtual machines"
            " (--disk) does not"
        )
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        _remove_dead_builds()
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
        where = error.filename or cache_folder()
        why = (
            error.strerror or str(error)[:_WHY_CHARACTERS]
        )  # shutil.copytree's has no number, but a list of what failed
        raise GuestBuildError(f"the guest image cannot be stored: {where}: {why}") from error
    return finished


def remove(name: str) -> bool:
    """Removes a part that no process uses or builds.

    Returns:
        Whether it is gone.

    Raises:
        GuestBuildError: It is another user's.
    """
    finished = cache_folder() / name
    with _ours(_used_file(name)), locked(_used_file(name), wait=False) as alone:
        if not alone:
            return False
        with locked(_lock_file(name), wait=False) as idle:
            if not idle:
                return False
            if finished.is_dir():
                partial = finished.with_name(name + _PARTIAL)
                finished.rename(partial)  # Never half of it under its own name.
                _remove(partial)
            _lock_file(name).unlink()
        _used_file(name).unlink()
    return True


def is_used(name: str) -> bool:
    """Whether a process uses a part.

    Raises:
        GuestBuildError: It is another user's.
    """
    path = _used_file(name)
    if not path.exists():
        return False
    with _ours(path), locked(path, wait=False) as alone:
        return not alone


@contextmanager
def _ours(path: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise GuestBuildError(f"{path.parent} is another user's, who alone can remove what is in it") from error


_used: dict[Path, int] = {}
"""The open lock files of the parts that this process, or the one it was forked from, uses."""


def _use(name: str) -> None:
    """Marks a part as used by this process; where the cache is another user's, only he can remove it, and need not know."""
    path = _used_file(name)
    if path not in _used:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            _used[path] = _open_locked(path, fcntl.LOCK_SH)


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """A lock of one's own on a file, which is made; whether it was got."""
    try:
        descriptor = _open_locked(path, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def _open_locked(path: Path, how: int) -> int:
    """A lock file, opened and locked; again where it was removed meanwhile."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def _lock(name: str, progress: Progress) -> Iterator[None]:
    with locked(_lock_file(name), wait=False) as got:
        if got:
            yield
            return
    progress("Another process is building this image; waiting for it")
    with locked(_lock_file(name), wait=True):
        yield


def _remove_dead_builds() -> None:
    """Removes the temporary folders that nobody builds in."""
    for partial in cache_folder().glob(f"*{_PARTIAL}"):
        with locked(_lock_file(partial.name.removesuffix(_PARTIAL)), wait=False) as idle:
            if idle:
                _remove(partial)


def _lock_file(name: str) -> Path:
    return cache_folder() / f"{name}.lock"


def _used_file(name: str) -> Path:
    return cache_folder() / f"{name}.used"


def _remove(folder: Path) -> None:
    if not folder.is_dir():
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:  # Not root, and some of it belongs to ids that he only has in a user namespace.
        if os.geteuid() == 0:
            raise
        namespace.run(["rm", "-r", "-f", str(folder)])
