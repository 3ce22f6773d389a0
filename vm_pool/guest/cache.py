"""Where finished parts of guest images are kept, each built once.

A part is a folder named after the hash of everything it is made from. It is built beside its place under a temporary name and
renamed when complete, so that a folder with the right name is always whole. A file lock lets one build go on at a time for each
part; whoever waited finds it built. Whatever a killed build left is removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vm_pool.guest import namespace
from vm_pool.guest.errors import GuestBuildError

Progress = Callable[[str], None]
"""Called with a sentence for whatever a build does next."""

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
        raise GuestBuildError(f"the guest image cannot be stored: {where}: {error.strerror}") from error
    return finished


@contextmanager
def _lock(name: str, progress: Progress) -> Iterator[None]:
    with _lock_file(name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("Another process is building this image; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_dead_builds() -> None:
    """Removes the temporary folders that nobody builds in."""
    for partial in cache_folder().glob(f"*{_PARTIAL}"):
        with _lock_file(partial.name.removesuffix(_PARTIAL)).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove(partial)


def _lock_file(name: str) -> Path:
    return cache_folder() / f"{name}.lock"


def _remove(folder: Path) -> None:
    if not folder.is_dir():
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:  # Not root, and some of it belongs to ids that he only has in a user namespace.
        if os.geteuid() == 0:
            raise
        namespace.run(["rm", "-r", "-f", str(folder)])
