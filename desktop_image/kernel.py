"""The kernel and initrd with which a virtual machine boots a guest's disk.

It is Debian's kernel for virtual machines. Its drivers for disks and networks are modules, so it needs a first root in
memory (initrd) that loads them: busybox, a few modules, and a script.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from desktop_image import mmdebstrap, rootless
from desktop_image.cache import ProgressCallback, part
from desktop_image.errors import GuestBuildError
from desktop_image.release import SUITE

_PACKAGES = ("busybox-static", "linux-image-cloud-amd64")
_MODULES = ("virtio_pci", "virtio_blk", "virtio_net")
_INIT = Path(__file__).parent / "first_root" / "init"
_FOLDERS = ("bin", "dev", "disk", "modules")


@dataclass(frozen=True, slots=True)
class GuestKernel:
    """What QEMU's ``-kernel`` and ``-initrd`` take."""

    kernel: Path
    first_root: Path
    digest: str


def guest_kernel(progress: ProgressCallback) -> GuestKernel:
    """Returns the kernel; fetches it first when it is missing.

    Raises:
        GuestBuildError: It cannot be fetched here.
    """
    digest, name = _digest(), kernel_name()
    if rootless.is_needed():
        folder = part(name, lambda target: rootless.build("kernel", target, progress), progress, as_root=False)
    else:
        folder = part(name, lambda target: build(target, progress), progress)
    return GuestKernel(folder / "vmlinuz", folder / "initrd", digest)


def kernel_name() -> str:
    """Returns the current name of the kernel's folder."""
    return f"kernel-{_digest()}"


def _digest() -> str:
    made_from = [SUITE, _PACKAGES, _MODULES, _INIT.read_text()]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]


def build(target: Path, progress: ProgressCallback) -> None:
    """Fetches the kernel into `target`, which must not exist, as root of the machine or of a user namespace.

    Raises:
        GuestBuildError: It cannot be fetched here.
    """
    progress("Fetching a kernel for virtual machines")
    target.mkdir()
    fetched, root = target / "packages", target / "root"
    options = ["--variant=extract", f"--include={','.join(_PACKAGES)}"]
    mmdebstrap.run("the kernel for virtual machines", fetched, options, progress)
    kernels = list(fetched.glob("boot/vmlinuz-*"))
    if len(kernels) != 1:
        raise GuestBuildError(f"the packages {', '.join(_PACKAGES)} hold {len(kernels)} kernels, not one")
    shutil.copyfile(kernels[0], target / "vmlinuz")
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True)
    busybox = fetched / "bin" / "busybox"
    shutil.copy(busybox, root / "bin")
    for place, module in enumerate(_modules_in_order(fetched)):
        shutil.copyfile(module, root / "modules" / f"{place:02}-{module.name}")
    shutil.copyfile(_INIT, root / "init")
    (root / "init").chmod(0o755)
    (target / "initrd").write_bytes(gzip.compress(_archive(root, busybox)))
    shutil.rmtree(fetched)
    shutil.rmtree(root)


def _modules_in_order(fetched: Path) -> list[Path]:
    """Returns the files of the needed modules, each after its dependencies."""
    files = {_name(file.name): file for file in fetched.glob("lib/modules/*/kernel/**/*.ko")}
    ordered: list[Path] = []
    for module in _MODULES:
        _add_with_needed(module, files, ordered)
    return ordered


def _add_with_needed(module: str, files: Mapping[str, Path], ordered: list[Path]) -> None:
    file = files.get(module)
    if file is None:
        raise GuestBuildError(f"the kernel has no module {module}")
    if file in ordered:
        return
    for line in file.read_bytes().split(b"\0"):
        if line.startswith(b"depends="):
            for needed in filter(None, line.removeprefix(b"depends=").decode().split(",")):
                _add_with_needed(_name(needed), files, ordered)
    ordered.append(file)


def _name(module: str) -> str:
    return module.removesuffix(".ko").replace("-", "_")


def _archive(root: Path, busybox: Path) -> bytes:
    """Returns the folder as an archive that the kernel reads."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    done = subprocess.run(  # noqa: S603
        [str(busybox), "cpio", "-o", "-H", "newc"],
        cwd=root,
        input="".join(f"{name}\n" for name in names).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise GuestBuildError(f"the first root could not be packed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
