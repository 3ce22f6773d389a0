"""The common part of all machines with the same options: what they boot, how they start and how they are checked."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from desktop_image.cache import ProgressCallback, discard, part
from vm_pool import canary
from vm_pool.providers import guest_server
from vm_pool.providers.guest_server import DesktopUnwell
from vm_pool.providers.qemu import qemu_img
from vm_pool.providers.qemu.acceleration import Acceleration
from vm_pool.providers.qemu.boot_disk import GuestBoot, OwnBoot
from vm_pool.providers.qemu.clock import set_over_http
from vm_pool.providers.qemu.command_line import DISK, VARIABLES, command_line, snapshot_nodes
from vm_pool.providers.qemu.folders import unprivileged
from vm_pool.providers.qemu.options import QemuOptions
from vm_pool.providers.qemu.process import ProcessorFailed, QemuProcess
from vm_pool.providers.qemu.qmp import QMPError

log = logging.getLogger(__name__)

SETTLE_SECONDS = 60.0
"""From the first complete screenshot until nothing changes."""
RESET_SECONDS = 60.0
"""From the reverted state to a healthy answer; a quarter of a second, with software emulation on an idle machine."""
_LOOK_SECONDS = 0.05
"""Between two checks of a VM that starts."""
_FIRST_ANSWER_SECONDS = 3.0
"""A guest whose network is not up yet loses requests."""
_SCREENSHOT_SECONDS = 10.0
"""The guest's server waits up to 8 s for a desktop to be drawn."""
_SAY_SECONDS = 10.0


class MachineType:
    """What machines with the same options have in common.

    Args:
        qemu: QEMU's command.
        options: The options.
        acceleration: How they run.
        boot: What they boot.
    """

    def __init__(self, qemu: str, options: QemuOptions, acceleration: Acceleration, boot: GuestBoot | OwnBoot) -> None:
        self._qemu = qemu
        self._options = options
        self._acceleration = acceleration
        self._boot = boot
        self._has_user_image = isinstance(boot, OwnBoot)
        self._given_up = False
        """Whether KVM could not run it, so that machines waiting for a first boot need not try."""

    @property
    def what(self) -> str:
        """The name of what they boot."""
        return str(self._boot.image) if self._has_user_image else f"guest image {self._options.profile}"

    def start(self, machine: QemuProcess, progress: ProgressCallback) -> None:
        """Starts a machine, in the state that `revert` goes back to.

        Only the first guest of a machine type boots; the others continue from its saved state.

        Raises:
            ProcessorFailed: KVM cannot run what they boot.
            Exception: It does not start; the machine is unusable.
        """
        try:
            self._start(machine, progress)
        except ProcessorFailed:
            self._given_up = self._options.accelerator == "auto"
            raise

    def _start(self, machine: QemuProcess, progress: ProgressCallback) -> None:
        if self._has_user_image:
            self._first_boot(machine, progress)
            machine.let_out()
            return
        name = f"saved-{self._identity()}"
        saved = part(name, lambda target: self._save(machine, target, progress), progress, as_root=False)
        try:
            if not (saved / DISK).exists():
                raise DesktopUnwell(f"{saved} has no {DISK}")
            machine.launch(lambda folder: _copy(saved / DISK, folder / DISK), self._command, snapshot_nodes(self._boot))
            self.revert(machine)
        except (QMPError, DesktopUnwell) as error:
            if machine.stopped:  # this says nothing about the saved state
                raise
            with suppress(OSError):  # then the next boot fails in the same way, and reports it
                discard(name)
            raise RuntimeError(
                f"{machine.vm_id}: what a first boot saved is of no use, and is made anew at the next boot: {error}"
            ) from error

    def revert(self, machine: QemuProcess) -> None:
        """Reverts a machine to its snapshot and checks its health, before its guest gets internet access.

        Raises:
            Exception: That fails; the machine is unusable.
        """
        machine.revert()
        if self._has_user_image:
            self._wait(machine, lambda seconds: self._look(machine, min(seconds, _SCREENSHOT_SECONDS)), RESET_SECONDS)
            set_over_http(lambda: machine.connect("control"), self._options.client_password)
        else:
            machine.set_clock()
            self._wait(machine, lambda seconds: _health(machine, min(seconds, _FIRST_ANSWER_SECONDS)), RESET_SECONDS)
        machine.let_out()

    def check(self, machine: QemuProcess, seconds: float) -> None:
        """Raises unless the machine is healthy and its screenshot has the right size."""
        if not self._has_user_image:
            _health(machine, seconds)
        self._look(machine, seconds)

    def fingerprint(self, machine: QemuProcess, seconds: float) -> Mapping[str, Sequence[str]]:
        """Returns processes and windows; nothing for the user's own image."""
        if self._has_user_image:
            return {}
        health = _health(machine, seconds)
        return {"processes": health.processes, "windows": health.windows}

    def _save(self, machine: QemuProcess, target: Path, progress: ProgressCallback) -> None:
        """Boots the guest image, and saves its state for all machines."""
        self._first_boot(machine, progress)
        folder = machine.quit()
        target.mkdir()
        shutil.move(folder / DISK, target / DISK)
        machine.put_away()

    def _first_boot(self, machine: QemuProcess, progress: ProgressCallback) -> None:
        if self._given_up:
            raise ProcessorFailed(f"{machine.vm_id}: KVM has failed another VM of the same image")
        began = time.monotonic()
        what = self.what
        how = "with KVM" if self._acceleration.name == "kvm" else "with software emulation"
        progress(f"Booting {what} {how} ({machine.vm_id})")
        machine.launch(self._make_disks, self._command, snapshot_nodes(self._boot))
        machine.run()
        said = began

        def look(seconds: float) -> None:
            nonlocal said
            if time.monotonic() - said > _SAY_SECONDS:
                said = time.monotonic()
                progress(
                    f"Booting {what} {how} ({machine.vm_id}): {said - began:.0f} s; its console: {machine.console()}"
                )
            if not self._has_user_image:
                _health(machine, min(seconds, _FIRST_ANSWER_SECONDS))
            self._look(machine, min(seconds, _SCREENSHOT_SECONDS))

        self._wait(machine, look, self._options.boot_seconds)
        if not self._has_user_image:
            self._wait(
                machine,
                lambda seconds: canary.settled(lambda: self.fingerprint(machine, _SCREENSHOT_SECONDS), seconds),
                SETTLE_SECONDS,
            )
        machine.run()
        progress(f"Saving the state of {what}, which took {time.monotonic() - began:.0f} s to boot")
        machine.save()

    def _wait(self, machine: QemuProcess, look: Callable[[float], object], seconds: float) -> None:
        """Repeats a check until it passes; gives up at once when QEMU ends."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                look(max(deadline - time.monotonic(), _LOOK_SECONDS))
                return
            except DesktopUnwell as error:
                machine.run()
                if time.monotonic() > deadline:
                    raise DesktopUnwell(
                        f"{machine.vm_id} is not ready within {seconds:.0f} s: {error}; the last lines of its console: "
                        f"{machine.console()}"
                    ) from error
            time.sleep(_LOOK_SECONDS)

    def _look(self, machine: QemuProcess, seconds: float) -> None:
        _, size = guest_server.screenshot(lambda: machine.connect("control"), seconds)
        wanted = (self._options.screen_width, self._options.screen_height)
        if self._has_user_image and machine.screen == (0, 0):
            machine.screen = size
            if size != wanted:
                log.warning("%s: the image's screen is %dx%d, not %dx%d", machine.vm_id, *size, *wanted)
        expected = machine.screen if self._has_user_image else wanted
        if size != expected:
            raise DesktopUnwell(
                f"{machine.vm_id}: the screenshot is {size[0]}x{size[1]}, not {expected[0]}x{expected[1]}"
            )

    def _make_disks(self, folder: Path) -> None:
        image_format = self._boot.format if isinstance(self._boot, OwnBoot) else "qcow2"
        qemu_img.make_overlay(self._boot.image, image_format, folder / DISK)
        if isinstance(self._boot, OwnBoot) and self._boot.firmware.variables is not None:
            qemu_img.run(
                "convert", "-f", "raw", "-O", "qcow2", str(self._boot.firmware.variables), str(folder / VARIABLES)
            )

    def _command(self, folder: Path, clock: int) -> list[str]:
        user = unprivileged()
        run_as = user.pw_name if user is not None else None
        return command_line(
            self._qemu, folder, self._boot, self._options, self._acceleration, clock=clock, run_as=run_as
        )

    def _identity(self) -> str:
        """Returns a hash that changes with anything that affects the saved state."""
        version = subprocess.run([self._qemu, "-version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
        processor = Path("/proc/cpuinfo").read_text().partition("\n\n")[0] if self._acceleration.name == "kvm" else ""
        stable = [line for line in processor.splitlines() if not line.startswith(("cpu MHz", "bogomips"))]
        made_from = [version, stable, self._command(Path("/"), 0), str(self._boot.image)]
        return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]


def _health(machine: QemuProcess, seconds: float) -> guest_server.Health:
    return guest_server.health(lambda: machine.connect("control"), seconds)


def _copy(source: Path, target: Path) -> None:
    done = subprocess.run(  # noqa: S603
        ["cp", "--reflink=auto", "--sparse=always", str(source), str(target)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the saved state could not be copied: {done.stderr.strip()}")
