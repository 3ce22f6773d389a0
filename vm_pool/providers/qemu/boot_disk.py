"""What a VM boots from: the guest image, or the user's own image."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from desktop_image.disk import GuestDisk
from vm_pool.errors import ProviderError
from vm_pool.providers.qemu import qemu_img
from vm_pool.providers.qemu.firmware import Firmware, firmware_for
from vm_pool.providers.qemu.options import QemuOptions


@dataclass(frozen=True, slots=True)
class GuestBoot:
    """The guest image, started with its own kernel."""

    disk: GuestDisk

    @property
    def image(self) -> Path:
        """The backing file of each VM's overlay."""
        return self.disk.image


@dataclass(frozen=True, slots=True)
class OwnBoot:
    """The user's own image, started with the firmware that its disk needs."""

    image: Path
    format: str
    firmware: Firmware


def own_image_name(path: Path) -> str:
    """Returns a name for the user's own image, from its file's path, size and time; empty without a file."""
    image = path.expanduser().absolute()
    try:
        seen = image.stat()
    except OSError:
        return ""
    return f"own-{hashlib.sha256(f'{image} {seen.st_size} {seen.st_mtime_ns}'.encode()).hexdigest()[:32]}"


def own_boot(path: Path, options: QemuOptions) -> OwnBoot:
    """Inspects the user's own image.

    Raises:
        ProviderError: It cannot be booted; one sentence says why.
    """
    image = path.expanduser().absolute()
    if not image.is_file():
        raise ProviderError(f"path_to_vm={path}: there is no such file")
    try:
        said = qemu_img.run("info", "--output=json", str(image))
    except RuntimeError as error:
        raise ProviderError(f"path_to_vm={path}: not a disk image that QEMU can read: {error}") from error
    described = json.loads(said)
    return OwnBoot(image, described["format"], firmware_for(image, described["format"], options.firmware))
