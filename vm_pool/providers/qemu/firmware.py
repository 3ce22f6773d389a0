"""Which firmware starts a disk, BIOS or UEFI: decided from its partitions."""

from __future__ import annotations

import struct
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from vm_pool.errors import ProviderError
from vm_pool.providers.qemu import qemu_img

_SECTOR = 512
_SECTORS = 34
"""The number of sectors up to the end of a partition table of the usual size."""
_EFI_SYSTEM = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
_BIOS_BOOT = uuid.UUID("21686148-6449-6e6f-744e-656564454649")
_MBR_EFI_SYSTEM = 0xEF
_FILES = (
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
)


@dataclass(frozen=True, slots=True)
class Firmware:
    """The firmware that starts a disk; QEMU has the BIOS built in."""

    code: Path | None = None
    """UEFI's code; None: BIOS."""
    variables: Path | None = None
    """UEFI's initial variables."""


def firmware_for(image: Path, image_format: str, wanted: str) -> Firmware:
    """Returns the firmware that starts a disk.

    Args:
        image: The disk.
        image_format: QEMU's name of its format.
        wanted: bios, uefi, or auto.

    Raises:
        ProviderError: UEFI is needed, and is not installed.
    """
    if wanted == "bios" or (wanted == "auto" and not needs_uefi(_first_sectors(image, image_format))):
        return Firmware()
    for code, variables in _FILES:
        if Path(code).is_file() and Path(variables).is_file():
            return Firmware(Path(code), Path(variables))
    raise ProviderError(f"{image} starts with UEFI, whose firmware is not installed: apt-get install ovmf")


def needs_uefi(sectors: bytes) -> bool:
    """Whether a disk with these first sectors starts with UEFI only."""
    types = [sectors[at + 4] for at in range(446, 510, 16)]
    if sectors[_SECTOR : _SECTOR + 8] == b"EFI PART":
        partitions = _partition_types(sectors)
        return _EFI_SYSTEM in partitions and _BIOS_BOOT not in partitions and not any(sectors[:440])
    return _MBR_EFI_SYSTEM in types and not any(sectors[:440])


def _partition_types(sectors: bytes) -> set[uuid.UUID]:
    first, count, size = (
        struct.unpack_from("<Q", sectors, _SECTOR + 72)[0],
        *struct.unpack_from("<II", sectors, _SECTOR + 80),
    )
    entries = range(first * _SECTOR, min(first * _SECTOR + count * size, len(sectors) - 15), max(size, 128))
    return {uuid.UUID(bytes_le=sectors[at : at + 16]) for at in entries}


def _first_sectors(image: Path, image_format: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "sectors"
        size = [f"bs={_SECTOR}", f"count={_SECTORS}"]
        qemu_img.run("dd", "-f", image_format, "-O", "raw", *size, f"if={image}", f"of={copied}")
        return copied.read_bytes().ljust(_SECTORS * _SECTOR, b"\0")
