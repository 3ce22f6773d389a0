"""Whether this machine can run VMs with KVM: found out by running a tiny one.

``/dev/kvm`` may exist and still not work, as inside many virtual machines. So a machine of seven instructions is booted
through the firmware; the result is remembered until the host machine boots again. If a guest fails later because the
processor lacks something, that is remembered as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vm_pool.processes import run_within
from vm_pool.providers.qemu.folders import state_folder

DEVICE = Path("/dev/kvm")
PROBE_SECONDS = 5.0
"""With hardware support, a tenth of a second is enough."""

_SAYS = 0x10
_BOOT_SECTOR = bytes((0xB0, _SAYS, 0xE6, 0xF4, 0xF4, 0xEB, 0xFD)).ljust(510, b"\0") + b"\x55\xaa"
"""``mov al, 0x10; out 0xf4, al; hlt; jmp back``: the device at that port ends QEMU with the given value."""
_EXIT_CODE = _SAYS << 1 | 1


@dataclass(frozen=True, slots=True)
class Acceleration:
    """How virtual machines run on this machine."""

    name: str
    """kvm or tcg."""
    why: str
    """Why not kvm; empty with kvm."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """QEMU's arguments for this accelerator."""
        if self.name == "kvm":
            return ("-accel", "kvm", "-cpu", "host")
        return ("-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max")


def choose(wanted: str, qemu: str) -> Acceleration:
    """Returns the accelerator to use.

    Args:
        wanted: kvm, tcg, or auto.
        qemu: QEMU's command.
    """
    if wanted == "tcg":
        return Acceleration("tcg", "the options ask for software emulation")
    if wanted == "kvm":
        return Acceleration("kvm", "")
    why = why_no_kvm(qemu)
    return Acceleration("tcg" if why else "kvm", why)


def why_no_kvm(qemu: str) -> str:
    """Returns why KVM cannot be used on this machine; empty when it works."""
    if not DEVICE.exists():
        return f"there is no {DEVICE}"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"{DEVICE} may not be used by this user: add it to the group kvm"
    try:
        known = json.loads(_remembered().read_text())
        if known["key"] == _key(qemu):
            return f"{known['why']}; noted in {_remembered()} until this machine boots again" if known["why"] else ""
    except (OSError, ValueError, KeyError, TypeError):
        pass
    why = probe(qemu, Acceleration("kvm", ""))
    remember(qemu, why)
    return why


def remember(qemu: str, why: str) -> None:
    """Stores why KVM cannot be used, or that it works, for all processes on this machine until it boots again."""
    remembered = _remembered()
    remembered.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=remembered.parent, delete=False) as file:
        json.dump({"key": _key(qemu), "why": why}, file)
    Path(file.name).rename(remembered)


def _remembered() -> Path:
    return state_folder() / "kvm.json"


def _key(qemu: str) -> str:
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {qemu} {Path(qemu).stat().st_mtime_ns}"


def probe(qemu: str, acceleration: Acceleration) -> str:
    """Runs a tiny machine; returns why that fails, or an empty text."""
    with tempfile.NamedTemporaryFile() as sector:
        sector.write(_BOOT_SECTOR)
        sector.flush()
        command = ["timeout", "-s", "KILL", str(2 * PROBE_SECONDS)]  # in case this process is killed meanwhile
        command += [qemu, *acceleration.arguments, "-machine", "pc", "-m", "64", "-nodefaults", "-no-user-config"]
        command += ["-display", "none", "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=1"]
        command += ["-drive", f"file={sector.name},format=raw,if=floppy,readonly=on"]
        try:
            code, messages = run_within(command, PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"a machine of seven instructions did not run through within {PROBE_SECONDS:.0f} s with {acceleration.name}"
    if code == _EXIT_CODE:
        return ""
    said = messages.strip().splitlines()
    return f"a machine of seven instructions could not be run with {acceleration.name}: {said[-1][-200:] if said else 'QEMU ended'}"
