"""A disk image of the user's own under the provider `qemu`, started by a PC's firmware and by UEFI.

The image is made here as users make theirs: a partition with a boot loader, and one with a system that nothing but its disk
says how to start. Its system is the guest image's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from desktop_image import guest_disk
from tests.desktops import said_by
from tests.virtual_machines import processes_naming
from vm_pool.errors import ProviderError
from vm_pool.providers.base import check_available, connect
from vm_pool.providers.qemu import QemuProvider
from vm_pool.providers.qemu.firmware import firmware_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

HOST = f"test-own-{os.getpid()}"
VM = f"{HOST}-0"
MEBIBYTE = 1 << 20
BOOT_MEBIBYTES = 96
KERNEL_SAYS = "console=ttyS0 quiet tsc=reliable mitigations=off DISK=/dev/vda2 GUEST_SCREEN=1280x720"


def run(*command: object, given: str = "") -> None:
    subprocess.run([str(word) for word in command], input=given, text=True, check=True, stdout=subprocess.DEVNULL)


def make_image(folder: Path, *, uefi: bool) -> Path:
    """A disk with two partitions: one with a loader, and one with the system."""
    disk = guest_disk("core")
    boot, system, whole, image = (folder / name for name in ("boot", "system", "whole", "own.qcow2"))
    with boot.open("wb") as file:
        file.truncate(BOOT_MEBIBYTES * MEBIBYTE)
    run("mkfs.vfat", "-F", 32, "-h", MEBIBYTE // 512, boot)
    (folder / "syslinux.cfg").write_text(
        f"DEFAULT linux\nLABEL linux\nKERNEL linux.efi\nAPPEND initrd=first.img {KERNEL_SAYS}\n"
    )
    (folder / "startup.nsh").write_text(f"linux.efi initrd=\\first.img {KERNEL_SAYS}\r\n")
    loader = "startup.nsh" if uefi else "syslinux.cfg"
    for source, name in (
        (disk.kernel.kernel, "linux.efi"),
        (disk.kernel.first_root, "first.img"),
        (folder / loader, loader),
    ):
        run("mcopy", "-i", boot, source, f"::{name}")
    if not uefi:
        run("syslinux", "--install", boot)
    run("qemu-img", "convert", "-O", "raw", disk.image, system)
    with whole.open("wb") as file:
        file.truncate((2 + BOOT_MEBIBYTES) * MEBIBYTE + system.stat().st_size)
    kind = "ef" if uefi else "c, bootable"
    run("sfdisk", "--quiet", whole, given=f"label: dos\nstart=1MiB, size={BOOT_MEBIBYTES}MiB, type={kind}\ntype=83\n")
    if not uefi:
        run("dd", "if=/usr/lib/syslinux/mbr/mbr.bin", f"of={whole}", "bs=440", "count=1", "conv=notrunc", "status=none")
    for part, at in ((boot, 1), (system, 1 + BOOT_MEBIBYTES)):
        run("dd", f"if={part}", f"of={whole}", "bs=1M", f"seek={at}", "conv=notrunc,sparse", "status=none")
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", whole, image)
    for file in (boot, system, whole):
        file.unlink()
    return image


@pytest.mark.parametrize("uefi", [False, True], ids=["bios", "uefi"])
def test_an_image_of_ones_own_boots_and_is_reverted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, uefi: bool
) -> None:
    image = make_image(tmp_path, uefi=uefi)
    assert (firmware_for(image, "qcow2", "auto").code is not None) is uefi
    made = image.stat()
    provider = QemuProvider(
        {"path_to_vm": image, "screen_width": 1280, "screen_height": 720, "memory_mib": 1024, "boot_seconds": 600}
    )
    check_available(provider)
    try:
        endpoint = provider.boot(VM)
        provider.check(VM)

        def in_guest(command: str) -> str:
            return said_by(connect(provider, VM, "control", endpoint), command, seconds=120)

        assert in_guest("touch /home/user/mark; ls /home/user/mark") == "/home/user/mark\n"
        endpoint = provider.reset(VM)
        provider.check(VM)
        assert "No such file" in in_guest("ls /home/user/mark")
        asked = time.time()
        assert (
            asked - 20 < float(in_guest("date +%s.%N")) < time.time() + 20
        )  # emulated clocks drift where much else runs
        assert "clock" not in caplog.text
    finally:
        provider.stop(VM)
    assert (image.stat().st_mtime_ns, image.stat().st_size) == (made.st_mtime_ns, made.st_size)
    assert processes_naming(VM) == []
    shutil.rmtree(tmp_path)


def test_a_disk_for_uefi_is_refused_without_its_firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk.raw"
    with disk.open("wb") as file:
        file.truncate(MEBIBYTE * 64)
    run("sfdisk", "--quiet", disk, given="label: gpt\nsize=32MiB, type=uefi\n")
    monkeypatch.setattr("vm_pool.providers.qemu.firmware._FILES", ())
    with pytest.raises(ProviderError, match="starts with UEFI, whose firmware is not installed: apt-get install ovmf"):
        check_available(QemuProvider({"path_to_vm": disk}))
