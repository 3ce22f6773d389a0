"""The guest's root as the disk of a virtual machine, made from the same layers that containers use.

The layers' owners are shifted; inside a user namespace with that shift they look as they should on the disk, so the file system
is written there. Reading files of other owners, and making such a namespace, needs root.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from vm_pool.guest.cache import Progress, cache_folder, part
from vm_pool.guest.errors import GuestBuildError
from vm_pool.guest.kernel import GuestKernel, guest_kernel
from vm_pool.guest.root import GUEST_ID_COUNT, GUEST_ID_SHIFT, GuestRoot, guest_root, size_of

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
_NAMESPACE_SECONDS = 10.0
_AS_GUEST_ROOT = """
echo inside
read -r _
exec setpriv --reuid=0 --regid=0 --clear-groups "$@"
"""


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
    root = guest_root(profile, progress)
    kernel = guest_kernel(progress)
    name = f"disk-{profile}-{root.digest}-{_FORMAT}"
    folder = part(name, lambda target: _build(root, target, progress), progress)
    return GuestDisk(profile, folder / "disk.qcow2", kernel, f"{root.digest}{_FORMAT}{kernel.digest}")


def built_disks(profile: str) -> list[Path]:
    """The folders of a profile's disks in the cache."""
    return sorted(folder for folder in cache_folder().glob(f"disk-{profile}-*-*") if folder.suffix == "")


def _build(root: GuestRoot, target: Path, progress: Progress) -> None:
    for command, package in _TOOLS.items():
        if shutil.which(command) is None:
            raise GuestBuildError(f"{command} is not installed: run 'apt-get install {package}', then try again")
    progress("Writing the guest's disk: putting its layers together")
    target.mkdir()
    merged, raw = target / "root", target / "disk.raw"
    *upper, lowest = root.layers
    _call(["cp", "--archive", "--link", str(lowest), str(merged)])
    for layer in reversed(upper):
        _call(["cp", "--archive", "--remove-destination", f"{layer}/.", str(merged)])
    progress("Writing the guest's disk: making its file system")
    _make_file_system(merged, raw, sum(map(size_of, root.layers)) + ROOM_BYTES)
    shutil.rmtree(merged)
    progress("Writing the guest's disk: packing it")
    _call(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(target / "disk.qcow2")])
    raw.unlink()


def _make_file_system(tree: Path, disk: Path, size: int) -> None:
    with disk.open("wb+") as file:
        file.truncate(size)
        os.fchown(file.fileno(), GUEST_ID_SHIFT, GUEST_ID_SHIFT)
        # No journal: what survives a crash of the machine is thrown away with its overlay anyway.
        command = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "assume_storage_prezeroed=1"]
        command += ["-d", ".", f"/proc/self/fd/{file.fileno()}"]
        _call_as_guest_root(command, tree, file.fileno())


def _call_as_guest_root(command: list[str], folder: Path, descriptor: int) -> None:
    """Runs a command in a user namespace whose root is the guest's. It reaches the folder and the descriptor, which are open."""
    with subprocess.Popen(  # noqa: S603
        ["unshare", "--user", "--keep-caps", "sh", "-c", _AS_GUEST_ROOT, "sh", *command],  # noqa: S607
        cwd=folder,
        pass_fds=[descriptor],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the command's input and output are pipes")
        try:
            inside = select.select([process.stdout], [], [], _NAMESPACE_SECONDS)[0] and process.stdout.readline()
            if inside == b"inside\n":
                for kind in ("uid", "gid"):
                    Path(f"/proc/{process.pid}/{kind}_map").write_text(f"0 {GUEST_ID_SHIFT} {GUEST_ID_COUNT}")
                said, _ = process.communicate(b"\n")
            else:
                said = inside or b"no user namespace could be made"
        except BaseException:
            process.kill()
            raise
        if inside != b"inside\n":
            process.kill()
    if process.returncode:
        raise GuestBuildError(
            f"{command[0]} could not write the guest's disk: {' '.join(said.decode().split())[-300:]}"
        )


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    if done.returncode:
        raise GuestBuildError(f"{command[0]} could not write the guest's disk: {' '.join(done.stderr.split())[-300:]}")
