"""QEMU's command line for one VM."""

from __future__ import annotations

import json
from pathlib import Path

from vm_pool.egress.exits import NAME_SERVER
from vm_pool.providers.guest_server import PORTS
from vm_pool.providers.qemu.acceleration import Acceleration
from vm_pool.providers.qemu.boot_disk import GuestBoot, OwnBoot
from vm_pool.providers.qemu.options import QemuOptions

DISK, VARIABLES = "disk.qcow2", "variables.qcow2"
"""Names in a VM's folder."""
CONSOLE, CONSOLE_BYTES = "console", 1 << 14
"""The first serial port: QEMU keeps the last bytes of what the guest writes there, however much that is."""

_KERNEL_SAYS = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"
"""The guest needs no internal mitigations: its user is its administrator. A panic ends the machine."""


def command_line(
    qemu: str,
    folder: Path,
    boot: GuestBoot | OwnBoot,
    options: QemuOptions,
    acceleration: Acceleration,
    *,
    clock: int,
    run_as: str | None,
) -> list[str]:
    """Returns the command that starts a VM, stopped before its first instruction.

    Its monitor is on its standard input and output.

    Args:
        qemu: QEMU's command.
        folder: The VM's folder, with its disk.
        boot: What it boots.
        options: Memory, processors and screen.
        acceleration: How it runs.
        clock: A socket's file descriptor, for the second serial port.
        run_as: The user that QEMU switches to after its setup; None: it does not switch.
    """
    command = [qemu, "-name", folder.name, *acceleration.arguments]
    command += ["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot", "-S"]
    command += ["-m", str(options.memory), "-smp", str(options.cpus), "-rtc", "base=utc"]
    command += ["-sandbox", "on,obsolete=deny,spawn=deny,resourcecontrol=deny"]
    if run_as is not None:
        command += ["-runas", run_as]
    command += ["-chardev", "stdio,id=monitor,signal=off", "-mon", "chardev=monitor,mode=control"]
    restrict = "off" if options.goes_out else "on"
    command += ["-netdev", f"user,id=net,restrict={restrict},ipv6=off,{_forwards()}"]
    command += _block("disk", folder / DISK)
    command += ["-chardev", f"ringbuf,id={CONSOLE},size={CONSOLE_BYTES}", "-serial", f"chardev:{CONSOLE}"]
    if isinstance(boot, GuestBoot):
        return command + _guest(boot, options, clock)
    return command + _user_image_devices(folder, boot, options)


def snapshot_nodes(boot: GuestBoot | OwnBoot) -> list[str]:
    """Returns the disks that a snapshot must contain besides the memory; the first one also stores the memory."""
    return ["disk"] if isinstance(boot, GuestBoot) or boot.firmware.code is None else ["disk", "variables"]


def _guest(boot: GuestBoot, options: QemuOptions, clock: int) -> list[str]:
    kernel = boot.disk.kernel
    session = f"GUEST_SCREEN={options.screen_width}x{options.screen_height}"
    if options.goes_out:
        session += f" GUEST_NAME_SERVER={NAME_SERVER}"
    return [
        *("-machine", "q35,vmport=off"),
        *(
            "-kernel",
            str(kernel.kernel),
            "-initrd",
            str(kernel.first_root),
            "-append",
            f"{_KERNEL_SAYS} DISK=/dev/vda {session}",
        ),
        *("-device", "virtio-blk-pci,drive=disk", "-device", "virtio-net-pci,netdev=net,romfile="),
        *("-chardev", f"socket,id=clock,fd={clock}", "-serial", "chardev:clock"),
    ]


def _user_image_devices(folder: Path, boot: OwnBoot, options: QemuOptions) -> list[str]:
    """Returns devices for which the image's system has drivers."""
    machine = "q35,vmport=off"
    disk, network = ("ide-hd", "e1000e") if options.os_type == "Windows" else ("virtio-blk-pci", "virtio-net-pci")
    blocks: list[str] = []
    if boot.firmware.code is not None:
        code = {"driver": "raw", "read-only": True, "file": {"driver": "file", "filename": str(boot.firmware.code)}}
        blocks = ["-blockdev", json.dumps({"node-name": "code", **code}), *_block("variables", folder / VARIABLES)]
        machine += ",pflash0=code,pflash1=variables"
    return [
        *("-machine", machine, *blocks),
        *("-device", f"{disk},drive=disk", "-device", f"{network},netdev=net,romfile="),
        *("-device", f"VGA,edid=on,xres={options.screen_width},yres={options.screen_height}"),
        *("-device", "qemu-xhci", "-device", "usb-tablet", "-device", "usb-kbd"),
    ]


def _block(node: str, file: Path) -> list[str]:
    """Returns a qcow2 file as a block device. It is never flushed: it need not survive a crash of this machine."""
    cache = {"direct": False, "no-flush": True}
    inner = {"driver": "file", "filename": str(file), "cache": cache}
    return ["-blockdev", json.dumps({"node-name": node, "driver": "qcow2", "cache": cache, "file": inner})]


def _forwards() -> str:
    """Returns forwards from this machine's loopback into the guest; the kernel chooses the ports as QEMU binds them."""
    return ",".join(f"hostfwd=tcp:127.0.0.1:0-:{port}" for port in PORTS.values())


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")
