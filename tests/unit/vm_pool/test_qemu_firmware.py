"""Which disks need UEFI to start: told by their first sectors."""

from __future__ import annotations

import struct
import uuid

import pytest

from vm_pool.providers.qemu.firmware import needs_uefi

CODE = b"\xfa\x33\xc0"
EFI_SYSTEM = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
BIOS_BOOT = "21686148-6449-6e6f-744e-656564454649"
LINUX = "0fc63daf-8483-4772-8e79-3d69d8477de4"


def disk(code: bytes, mbr_types: tuple[int, ...], gpt_types: tuple[str, ...] = ()) -> bytes:
    sectors = bytearray(34 * 512)
    sectors[: len(code)] = code
    for place, kind in enumerate(mbr_types):
        sectors[446 + 16 * place + 4] = kind
    sectors[510:512] = b"\x55\xaa"
    if gpt_types:
        sectors[512:520] = b"EFI PART"
        struct.pack_into("<Q", sectors, 512 + 72, 2)
        struct.pack_into("<II", sectors, 512 + 80, 128, 128)
        for place, kind in enumerate(gpt_types):
            start = 1024 + 128 * place
            sectors[start : start + 16] = uuid.UUID(kind).bytes_le
    return bytes(sectors)


@pytest.mark.parametrize(
    ("what", "sectors", "uefi"),
    [
        ("an empty disk", disk(b"", ()), False),
        ("a PC's disk with a boot loader", disk(CODE, (0x83,)), False),
        ("a PC's disk with a boot loader and a partition for UEFI", disk(CODE, (0x83, 0xEF)), False),
        ("a PC's disk that only UEFI starts", disk(b"", (0xEF, 0x83)), True),
        ("a new disk for UEFI", disk(b"", (0xEE,), (EFI_SYSTEM, LINUX)), True),
        ("a new disk for both", disk(CODE, (0xEE,), (BIOS_BOOT, EFI_SYSTEM, LINUX)), False),
        ("a new disk without anything to start", disk(b"", (0xEE,), (LINUX,)), False),
    ],
)
def test_firmware_is_chosen_by_the_partition_table(what: str, sectors: bytes, uefi: bool) -> None:
    assert needs_uefi(sectors) is uefi
