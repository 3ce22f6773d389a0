"""The guest's root as two read-only layers, found in the cache or built into it.

A layer's folder is named after the hash of everything it is made from. It is built beside its place under a temporary name
and renamed when complete, so that a folder with the right name is always whole. A file lock lets one build go on at a time
for each layer; whoever waited finds the layer built. Whatever a killed build left is removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vm_pool.guest import files_layer, packages_layer
from vm_pool.guest.errors import GuestBuildError
from vm_pool.guest.ownership import shift_owners
from vm_pool.guest.profiles import PROFILES

GUEST_ID_SHIFT = 100_000
"""The guest's uid and gid 0 on the host."""
GUEST_ID_COUNT = 65_536
"""How many ids the guest has."""

Progress = Callable[[str], None]
"""Called with a sentence for whatever a build does next."""

_PARTIAL = ".partial"
_LAYER = re.compile(r"(?:packages-(?P<profile>[a-z]+)|files)-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class GuestRoot:
    """A guest image, ready to be mounted."""

    profile: str
    layers: tuple[Path, ...]
    """Directories for an overlay's ``lowerdir``, topmost first; owners are shifted by `GUEST_ID_SHIFT`."""
    digest: str
    """Changes whenever anything in the image does."""


def guest_root(profile: str, progress: Progress = lambda _sentence: None) -> GuestRoot:
    """The image of a profile, built first where it is missing.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    if profile not in PROFILES:
        raise GuestBuildError(f"there is no guest profile {profile!r}: choose one of {', '.join(PROFILES)}")
    packages = _layer(
        f"packages-{profile}-{packages_layer.digest(profile)}",
        lambda target: packages_layer.build(profile, target, progress),
        progress,
    )
    files = _layer(
        f"files-{files_layer.digest(packages_layer.PYTHON)}",
        lambda target: files_layer.build(target, packages, progress),
        progress,
    )
    return GuestRoot(profile, (files, packages), f"{files.name[-16:]}{packages.name[-16:]}")


def built_roots() -> Iterator[tuple[str, Path, bool]]:
    """The package layers in the cache: profile, folder, and whether it is what the profile would use now."""
    for folder in sorted(cache_folder().glob("packages-*")):
        found = _LAYER.fullmatch(folder.name)
        if found and found["profile"] in PROFILES:
            current = folder.name.endswith(packages_layer.digest(found["profile"]))
            yield found["profile"], folder, current


def size_of(layer: Path) -> int:
    """How many bytes a layer takes on disk."""
    counted: dict[tuple[int, int], int] = {}
    for folder, _directories, files in os.walk(layer):
        for name in files:
            found = Path(folder, name).lstat()
            counted[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(counted.values())


def cache_folder() -> Path:
    """Where images are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "computer-use-rollouts" / "guest"


def _layer(name: str, build: Callable[[Path], None], progress: Progress) -> Path:
    finished = cache_folder() / name
    if finished.is_dir():
        return finished
    if os.geteuid() != 0:
        raise GuestBuildError("building a guest image needs root, for its files have other owners: run it as root once")
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        _remove_dead_builds()
        with _lock(name, progress):
            if not finished.is_dir():
                partial = finished.with_name(name + _PARTIAL)
                _remove(partial)
                try:
                    build(partial)
                    shift_owners(partial, GUEST_ID_SHIFT, GUEST_ID_COUNT)
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
    if folder.is_dir():
        shutil.rmtree(folder)
