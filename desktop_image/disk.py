"""Builds the disk of a virtual machine from the same layers that containers use.

The layers' owners are shifted. Inside a user namespace with the same shift they look right, so the file system is
written there; this needs root. For other users, everything, packages included, is built in one user namespace.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from desktop_image import build_programs, files_layer, namespace, packages_layer, rootless
from desktop_image.cache import ProgressCallback, part
from desktop_image.errors import GuestBuildError
from desktop_image.images import Image, image_named
from desktop_image.kernel import GuestKernel, guest_kernel
from desktop_image.ownership import GUEST_ID_SHIFT
from desktop_image.release import BOOKWORM
from desktop_image.root import GuestRoot, root_digest, root_of, size_of

ROOM_BYTES = 6 << 30
"""How much the guest may write in addition to its image; takes no space until it is written."""
_OPAQUE = "trusted.overlay.opaque"
_FORMAT = 1
"""Changed when the same layers would make a different disk."""
_TOOLS = {
    "mke2fs": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "cp": "coreutils",
}


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """What a virtual machine boots a guest from."""

    name: str
    image: Path
    """A qcow2 file, to be used as the backing file of an overlay."""
    kernel: GuestKernel
    digest: str
    """Changes whenever anything in the disk or the kernel does."""


def guest_disk(image_name: str, progress: ProgressCallback = lambda _sentence: None) -> GuestDisk:
    """Returns the disk of a named image; builds it first when it is missing.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    return disk_of(image_named(image_name), progress)


def disk_of(image: Image, progress: ProgressCallback = lambda _sentence: None) -> GuestDisk:
    """Returns an image's disk; builds it first when it is missing.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    name = disk_name(image)
    if rootless.is_needed():
        if image.name != image.profile:
            raise GuestBuildError(
                "building an image of your own needs root; without root's rights, profiles can be built"
            )
        folder = part(name, lambda target: rootless.build(image.name, target, progress), progress, as_root=False)
    else:
        folder = part(name, lambda target: _build(root_of(image, progress), target, progress), progress)
    kernel = guest_kernel(progress)
    digest = root_digest(image)
    return GuestDisk(image.name, folder / "disk.qcow2", kernel, f"{digest}{_FORMAT}{kernel.digest}")


def disk_name(image: Image) -> str:
    """Returns the current name of an image's disk."""
    return f"disk-{image.name}-{root_digest(image)}-{_FORMAT}"


def build_from_nothing(profile: str, target: Path, progress: ProgressCallback) -> None:
    """Builds a disk as the root of a user namespace; its layers are not kept.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    _check_tools()
    target.mkdir()
    packages, files = target / "packages", target / "files"
    packages_layer.build(profile, BOOKWORM, packages, progress)
    files_layer.build(files, packages, progress)
    progress("Writing the guest's disk")
    _call(["cp", "--archive", "--remove-destination", f"{files}/.", str(packages)])
    _pack(packages, 0, size_of(packages), _call, target)
    for folder in (packages, files):
        shutil.rmtree(folder)


def _build(root: GuestRoot, target: Path, progress: ProgressCallback) -> None:
    _check_tools()
    progress("Writing the guest's disk: putting its layers together")
    target.mkdir()
    merged = target / "root"
    *upper, lowest = root.layers
    _call(["cp", "--archive", "--link", str(lowest), str(merged)])
    for layer in reversed(upper):
        put_layer_on(layer, merged)
    progress("Writing the guest's disk: making its file system")
    _pack(merged, GUEST_ID_SHIFT, sum(map(size_of, root.layers)), _call_as_guest_root, target)
    shutil.rmtree(merged)


def put_layer_on(layer: Path, merged: Path) -> None:
    """Merges an overlay's layer into the tree below, and applies its marks for removed files and replaced folders."""
    for folder, directories, files in os.walk(layer):
        below = merged / Path(folder).relative_to(layer)
        for name in directories:
            if _is_opaque(Path(folder, name)):
                _remove(below / name)
        for name in files:
            if _is_whiteout(Path(folder, name)):
                _remove(below / name)
    _call(["cp", "--archive", "--remove-destination", f"{layer}/.", str(merged)])
    for folder, _, files in os.walk(merged):
        for name in files:
            if _is_whiteout(Path(folder, name)):
                Path(folder, name).unlink()


def _is_opaque(folder: Path) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE) == b"y"
    except OSError:
        return False


def _is_whiteout(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _pack(
    tree: Path, owner: int, size: int, make: Callable[[list[str], Path, Sequence[int]], None], target: Path
) -> None:
    """Makes the disk from a tree."""
    raw = target / "disk.raw"
    with raw.open("wb+") as file:
        file.truncate(size + ROOM_BYTES)
        os.fchown(file.fileno(), owner, owner)
        # No journal: after a crash of the machine, its overlay is discarded anyway.
        command = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "assume_storage_prezeroed=1"]
        make([*command, "-d", ".", f"/proc/self/fd/{file.fileno()}"], tree, [file.fileno()])
    _call(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(target / "disk.qcow2")])
    raw.unlink()


def _call_as_guest_root(command: list[str], folder: Path, descriptors: Sequence[int]) -> None:
    """Runs a command in a user namespace whose root owns the layers; it can access the folder and the open files."""
    code, said = namespace.run(command, folder=folder, descriptors=descriptors)
    if code:
        raise GuestBuildError(f"{command[0]} could not write the guest's disk: {said[-300:]}")


def _call(command: list[str], folder: Path | None = None, descriptors: Sequence[int] = ()) -> None:
    failure = f"{command[0]} could not write the guest's disk"
    build_programs.call(command, failure, folder=folder, descriptors=descriptors)


def _check_tools() -> None:
    missing = sorted({package for command, package in _TOOLS.items() if shutil.which(command) is None})
    if missing:
        packages = " ".join(missing)
        raise GuestBuildError(
            f"tools for making the guest's disk are not installed: run 'apt-get install {packages}', then try again"
        )
