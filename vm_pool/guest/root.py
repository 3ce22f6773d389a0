"""The guest's root as two read-only layers, found in the cache or built into it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vm_pool.guest import files_layer, packages_layer
from vm_pool.guest.cache import Progress, cache_folder, part
from vm_pool.guest.errors import GuestBuildError
from vm_pool.guest.ownership import shift_owners
from vm_pool.guest.profiles import PROFILES

GUEST_ID_SHIFT = 100_000
"""The guest's uid and gid 0 on the host."""
GUEST_ID_COUNT = 65_536
"""How many ids the guest has."""

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


def _layer(name: str, build: Callable[[Path], None], progress: Progress) -> Path:
    def build_shifted(target: Path) -> None:
        build(target)
        shift_owners(target, GUEST_ID_SHIFT, GUEST_ID_COUNT)

    return part(name, build_shifted, progress)
