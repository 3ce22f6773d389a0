"""The guest's root as read-only layers from the cache: packages, the project's files, a user's extension."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from desktop_image import extension_layer, files_layer, packages_layer
from desktop_image.cache import ProgressCallback, part
from desktop_image.errors import GuestBuildError
from desktop_image.images import Image, image_named
from desktop_image.ownership import GUEST_ID_COUNT, GUEST_ID_SHIFT, shift_owners


@dataclass(frozen=True, slots=True)
class GuestRoot:
    """A guest image, ready to be mounted."""

    name: str
    layers: tuple[Path, ...]
    """Directories for an overlay's ``lowerdir``, topmost first; owners are shifted by `GUEST_ID_SHIFT`."""
    digest: str
    """Changes whenever anything in the image does."""


def guest_root(name: str, progress: ProgressCallback = lambda _sentence: None) -> GuestRoot:
    """Returns the root of a named image; builds it first when it is missing.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    return root_of(image_named(name), progress)


def root_of(image: Image, progress: ProgressCallback = lambda _sentence: None) -> GuestRoot:
    """Returns an image's root; builds it first when it is missing.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    packages_name, files_name, *added = layer_names(image)
    packages = _layer(
        packages_name,
        lambda target: packages_layer.build(image.profile, image.release, target, progress),
        progress,
    )
    files = _layer(
        files_name,
        lambda target: files_layer.build(target, packages, progress),
        progress,
    )
    layers: tuple[Path, ...] = (files, packages)
    if image.extension is not None:
        extension, below = image.extension, layers
        folder = part(
            added[0],
            lambda target: extension_layer.build(extension, image.release, below, target, progress),
            progress,
        )
        layers = (folder / extension_layer.LAYER, *layers)
    return GuestRoot(image.name, layers, root_digest(image))


def layer_names(image: Image) -> tuple[str, ...]:
    """Returns the current names of an image's layers: packages, the project's files, and a user's extension, if any."""
    packages = packages_layer.digest(image.profile, image.release)
    files = files_layer.digest(image.release.suite)
    names = (f"packages-{image.profile}-{packages}", f"files-{files}")
    if image.extension is None:
        return names
    return (*names, f"additions-{image.name}-{extension_layer.digest(image.extension, packages + files)}")


def root_digest(image: Image) -> str:
    """Returns a digest that changes whenever anything in the image does."""
    packages, files, *added = layer_names(image)
    return f"{added[0][-16:]}" if added else f"{files[-16:]}{packages[-16:]}"


def guest_image_name(name: str) -> str:
    """Returns the image's name with its digest; empty when the image does not exist on this machine."""
    try:
        return f"{name}-{root_digest(image_named(name))}"
    except GuestBuildError:
        return ""


def size_of(layer: Path) -> int:
    """Returns how many bytes a layer takes on disk; files that another process removes meanwhile count nothing."""
    counted: dict[tuple[int, int], int] = {}
    for folder, _directories, files in os.walk(layer):
        for name in files:
            with suppress(FileNotFoundError):
                found = Path(folder, name).lstat()
                counted[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(counted.values())


def _layer(name: str, build: Callable[[Path], None], progress: ProgressCallback) -> Path:
    def build_shifted(target: Path) -> None:
        build(target)
        shift_owners(target, GUEST_ID_SHIFT, GUEST_ID_COUNT)

    return part(name, build_shifted, progress)
