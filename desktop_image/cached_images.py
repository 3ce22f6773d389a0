"""Lists the parts in the cache of guest images, and removes those that are no longer used."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from desktop_image import cache
from desktop_image.cache import ProgressCallback, guest_cache_folder
from desktop_image.disk import disk_name
from desktop_image.errors import GuestBuildError
from desktop_image.image_facts import facts_folder_name
from desktop_image.images import EXTERNAL_IMAGE_NAME, check_own, forget, image_named, image_names, remove_dead_changes
from desktop_image.kernel import kernel_name
from desktop_image.root import guest_image_name, layer_names, size_of

_NAME = re.compile(
    r"(?P<kind>packages|files|additions|disk|facts|kernel|saved)-(?:(?P<image>[a-z][a-z0-9-]*?)-)?[0-9a-f]{16,32}(?:-\d+)?"
)
_QCOW2 = struct.Struct(">4sIQI")


@dataclass(frozen=True, slots=True)
class CachedImage:
    """A part of an image in the cache."""

    kind: str
    """packages, files, additions, disk, kernel; facts: of an image; saved: a machine's state after its first boot;
    unfinished: left by a process that was killed while it built or removed something."""
    image: str
    """The name of the image or profile; empty when the part belongs to all."""
    folder: Path
    current: bool
    """Whether images use it now; other parts were made by another recipe."""
    bytes: int
    """Its size on disk."""


def list_images() -> list[CachedImage]:
    """Returns all parts in the cache."""
    return list(_parts())


def is_built(name: str) -> bool:
    """Whether every layer of an image is in the cache.

    Raises:
        GuestBuildError: There is no image of that name.
    """
    return all((guest_cache_folder() / layer).is_dir() for layer in layer_names(image_named(name)))


def prune(progress: ProgressCallback = lambda _sentence: None) -> tuple[list[CachedImage], list[CachedImage]]:
    """Removes outdated parts, except those that a process uses, and what killed processes left.

    Returns:
        The removed parts, and the outdated parts in use.
    """
    removed: list[CachedImage] = []
    kept: list[CachedImage] = []

    def report(folder: Path) -> None:
        progress(f"Removing {folder.name}")
        removed.append(CachedImage("unfinished", "", folder, current=False, bytes=size_of(folder)))

    cache.remove_dead_builds(report)
    remove_dead_changes(report)
    for part in _parts():
        if not part.current:
            progress(f"Removing {part.folder.name}")
            (removed if cache.remove(part.folder.name) else kept).append(part)
    return removed, kept


def remove_image(
    name: str, progress: ProgressCallback = lambda _sentence: None
) -> tuple[list[CachedImage], list[CachedImage]]:
    """Removes an image that a user made, with all parts that no other image uses.

    Returns:
        The removed parts, and those that a process began to use meanwhile.

    Raises:
        GuestBuildError: The image does not exist, comes with this project, or is in use; nothing is removed then.
    """
    check_own(name)
    needed = {part.folder.name for part in _parts() if part.current}
    unshared_parts = [
        part for part in _parts(without=name) if part.image == name or (part.folder.name in needed and not part.current)
    ]
    if used := [part.folder for part in unshared_parts if cache.is_used(part.folder.name)]:
        raise GuestBuildError(f"--remove: the guest image {name!r} is in use ({used[0]}): stop its VM hosts first")
    forget(name)
    removed: list[CachedImage] = []
    kept: list[CachedImage] = []
    for part in unshared_parts:
        progress(f"Removing {part.folder.name}")
        (removed if cache.remove(part.folder.name) else kept).append(part)
    return removed, kept


def _parts(without: str = "") -> Iterator[CachedImage]:
    """Yields all parts in the cache; `current` is as it would be without the given image."""
    now = {kernel_name()}
    for name in set(image_names()) - {without}:
        with suppress(GuestBuildError):
            image = image_named(name)
            now |= {*layer_names(image), disk_name(image), facts_folder_name(guest_image_name(name))}
    for folder in sorted(guest_cache_folder().glob("*-*")):
        found = _NAME.fullmatch(folder.name)
        if found and folder.is_dir():
            disk = _backing_disk(folder) if found["kind"] == "saved" else None
            made_of = _NAME.fullmatch(disk.name) if disk else found
            whose = (made_of["image"] if made_of else "") or ""
            current = (disk or folder).name in now or whose == EXTERNAL_IMAGE_NAME
            yield CachedImage(found["kind"], whose, folder, current, size_of(folder))


def _backing_disk(saved: Path) -> Path | None:
    """Returns the folder of the disk that a saved state is based on; None when it is not known."""
    try:
        with (saved / "disk.qcow2").open("rb") as file:
            magic, _version, at, length = _QCOW2.unpack(file.read(_QCOW2.size))
            file.seek(at)
            backing = Path(file.read(length).decode()) if magic == b"QFI\xfb" and length < 1024 else None
    except (OSError, struct.error, ValueError):
        return None
    return backing.parent if backing and backing.is_file() and _NAME.fullmatch(backing.parent.name) else None
