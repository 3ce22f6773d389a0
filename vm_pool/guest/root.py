"""The guest's root as two read-only layers, found in the cache or built into it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vm_pool.guest import files_layer, packages_layer
from vm_pool.guest.cache import Progress, part
from vm_pool.guest.errors import GuestBuildError
from vm_pool.guest.ownership import GUEST_ID_COUNT, GUEST_ID_SHIFT, shift_owners
from vm_pool.guest.profiles import PROFILES


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
    check_profile(profile)
    packages_name, files_name = layer_names(profile)
    packages = _layer(
        packages_name,
        lambda target: packages_layer.build(profile, target, progress),
        progress,
    )
    files = _layer(
        files_name,
        lambda target: files_layer.build(target, packages, progress),
        progress,
    )
    return GuestRoot(profile, (files, packages), root_digest(profile))


def check_profile(profile: str) -> None:
    """Refuses what is no profile.

    Raises:
        GuestBuildError: It is none.
    """
    if profile not in PROFILES:
        raise GuestBuildError(f"there is no guest profile {profile!r}: choose one of {', '.join(PROFILES)}")


def layer_names(profile: str) -> tuple[str, str]:
    """What the layers of a profile are called now: the packages, the project's files."""
    return (
        f"packages-{profile}-{packages_layer.digest(profile)}",
        f"files-{files_layer.digest(packages_layer.PYTHON)}",
    )


def root_digest(profile: str) -> str:
    """Changes whenever anything in the image does."""
    packages, files = layer_names(profile)
    return f"{files[-16:]}{packages[-16:]}"


def guest_image_name(profile: str) -> str:
    """Names the image of a profile; changes whenever anything in the image does."""
    return f"{profile}-{root_digest(profile)}" if profile in PROFILES else ""


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
