"""The guest's root as the disk of a virtual machine, made from the same layers that containers use.

The layers' owners are shifted; inside a user namespace with that shift they look as they should on the disk, so the file system
is written there. That needs root. For other users, everything from the packages on is made in one user namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vm_pool.guest import files_layer, namespace, packages_layer, rootless
from vm_pool.guest.cache import Progress, part
from vm_pool.guest.errors import GuestBuildError
from vm_pool.guest.kernel import GuestKernel, guest_kernel
from vm_pool.guest.ownership import GUEST_ID_SHIFT
from vm_pool.guest.root import GuestRoot, check_profile, guest_root, root_digest, size_of

ROOM_BYTES = 6 << 30
"""What the guest may write beyond its image; takes no room before."""
_FORMAT = 1
"""Changes when the same layers come to make another disk."""
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

    profile: str
    image: Path
    """A qcow2 file, to be used as the backing file of an overlay."""
    kernel: GuestKernel
    digest: str
    """Changes whenever anything in the disk or the kernel does."""


def guest_disk(profile: str, progress: Progress = lambda _sentence: None) -> GuestDisk:
    """The disk of a profile, built first where it is missing.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    check_profile(profile)
    digest = root_digest(profile)
    name = disk_name(profile)
    if rootless.is_needed():
        folder = part(name, lambda target: rootless.build(profile, target, progress), progress, as_root=False)
    else:
        folder = part(name, lambda target: _build(guest_root(profile, progress), target, progress), progress)
    kernel = guest_kernel(progress)
    return GuestDisk(profile, folder / "disk.qcow2", kernel, f"{digest}{_FORMAT}{kernel.digest}")


def disk_name(profile: str) -> str:
    """What the disk of a profile is called now."""
    return f"disk-{profile}-{root_digest(profile)}-{_FORMAT}"


def build_from_nothing(profile: str, target: Path, progress: Progress) -> None:
    """As the root of a user namespace, builds a disk whose layers nobody else needs.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    _check_tools()
    target.mkdir()
    packages, files = target / "packages", target / "files"
    packages_layer.build(profile, packages, progress)
    files_layer.build(files, packages, progress)
    progress("Writing the guest's disk")
    _call(["cp", "--archive", "--remove-destination", f"{files}/.", str(packages)])
    _pack(packages, 0, size_of(packages), _call, target)
    for folder in (packages, files):
        shutil.rmtree(folder)


def _build(root: GuestRoot, target: Path, progress: Progress) -> None:
    _check_tools()
    progress("Writing the guest's disk: putting its layers together")
    target.mkdir()
    merged = target / "root"
    *upper, lowest = root.layers
    _call(["cp", "--archive", "--link", str(lowest), str(merged)])
    for layer in reversed(upper):
        _call(["cp", "--archive", "--remove-destination", f"{layer}/.", str(merged)])
    progress("Writing the guest's disk: making its file system")
    _pack(merged, GUEST_ID_SHIFT, sum(map(size_of, root.layers)), _call_as_guest_root, target)
    shutil.rmtree(merged)


def _pack(tree: Path, owner: int, size: int, make: Callable[[list[str], Path, int], None], target: Path) -> None:
    """Makes the disk from a tree."""
    raw = target / "disk.raw"
    with raw.open("wb+") as file:
        file.truncate(size + ROOM_BYTES)
        os.fchown(file.fileno(), owner, owner)
        # No journal: what survives a crash of the machine is thrown away with its overlay anyway.
        command = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "assume_storage_prezeroed=1"]
        make([*command, "-d", ".", f"/proc/self/fd/{file.fileno()}"], tree, file.fileno())
    _call(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(target / "disk.qcow2")])
    raw.unlink()


def _call_as_guest_root(command: list[str], folder: Path, descriptor: int) -> None:
    """In a user namespace whose root owns the layers' files; it reaches what is open: the folder and the descriptor."""
    code, said = namespace.run(command, folder=folder, descriptors=[descriptor])
    if code:
        raise GuestBuildError(f"{command[0]} could not write the guest's disk: {said[-300:]}")


def _call(command: list[str], folder: Path | None = None, descriptor: int | None = None) -> None:
    descriptors = [] if descriptor is None else [descriptor]
    done = subprocess.run(  # noqa: S603
        command, cwd=folder, pass_fds=descriptors, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise GuestBuildError(f"{command[0]} could not write the guest's disk: {' '.join(done.stderr.split())[-300:]}")


def _check_tools() -> None:
    missing = sorted({package for command, package in _TOOLS.items() if shutil.which(command) is None})
    if missing:
        packages = " ".join(missing)
        raise GuestBuildError(
            f"tools for making the guest's disk are not installed: run 'apt-get install {packages}', then try again"
        )
