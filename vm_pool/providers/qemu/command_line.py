"""QEMU's command line for one VM."""

from __future__ import annotations

import json
from pathlib import Path

from vm_pool.egress.exits import NAME_SERVER
from vm_pool.providers.guest_server import PORTS
from vm_pool.providers.qemu.acceleration import Acceleration
from vm_pool.providers.qemu.boot_disk import GuestBoot, OwnBoot
from vm_pool.providers.qemu.options import QemuOptions

DISK, VARIABLES, CONSOLE = "disk.qcow2", "variables.qcow2", "console"
"""Names in a VM's folder."""

_KERNEL_SAYS = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"
"""The guest's own boundaries are not worth guarding: its user is its administrator. A panic ends the machine."""


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
    """The command that starts a VM, stopped before its first instruction.

    Its monitor is at its standard input and output.

    Args:
        qemu: QEMU's command.
        folder: The VM's, with its disk.
        boot: What it boots.
        options: Memory, processors and screen.
        acceleration: How it runs.
        clock: A descriptor of a socket, the second serial port's.
        run_as: The user that QEMU becomes once it is set up; None: stays who it is.
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
    command += ["-chardev", f"file,id=console,path={_escaped(folder / CONSOLE)}", "-serial", "chardev:console"]
    if isinstance(boot, GuestBoot):
        return command + _guest(boot, options, clock)
    return command + _own(folder, boot, options)


def snapshot_nodes(boot: GuestBoot | OwnBoot) -> list[str]:
    """The names of what a snapshot of the machine must hold besides its memory; the first one stores that too."""
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


def _own(folder: Path, boot: OwnBoot, options: QemuOptions) -> list[str]:
    """Devices that the image's system brings drivers for."""
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
    """A qcow2 file. What survives a crash of this machine does not matter, so nothing is ever flushed."""
    cache = {"direct": False, "no-flush": True}
    inner = {"driver": "file", "filename": str(file), "cache": cache}
    return ["-blockdev", json.dumps({"node-name": node, "driver": "qcow2", "cache": cache, "file": inner})]


def _forwards() -> str:
    """Ports of this machine's loopback that lead into the guest; which ones, the kernel chooses as QEMU binds them."""
    return ",".join(f"hostfwd=tcp:127.0.0.1:0-:{port}" for port in PORTS.values())


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")
