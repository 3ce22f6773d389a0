"""The provider `qemu`: each VM is a virtual machine, reverted by loading a snapshot of its memory and disk."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from desktop_image import guest_image_name
from desktop_image.disk import guest_disk
from vm_pool.egress import parse_policy
from vm_pool.egress.exits import check_commands
from vm_pool.egress.relay import Relay
from vm_pool.errors import ProviderError
from vm_pool.namespaces import can_make_namespaces
from vm_pool.providers.base import with_network
from vm_pool.providers.folder_lock import wait_until_unused
from vm_pool.providers.leftovers import end_each
from vm_pool.providers.qemu import acceleration
from vm_pool.providers.qemu.acceleration import Acceleration
from vm_pool.providers.qemu.boot_disk import GuestBoot, OwnBoot, own_boot, own_image_name
from vm_pool.providers.qemu.folders import end_abandoned, end_leftover, folder_of, leftovers
from vm_pool.providers.qemu.internet_access import InternetAccess
from vm_pool.providers.qemu.machine_type import MachineType
from vm_pool.providers.qemu.options import QemuOptions
from vm_pool.providers.qemu.private_network import PrivateNetwork
from vm_pool.providers.qemu.process import ProcessorFailed, QemuProcess, QemuStopped
from vm_pool.states import Endpoint

log = logging.getLogger(__name__)

SAY_EVERY_SECONDS = 5.0
"""How often the same step of a start is logged."""
QEMU = "qemu-system-x86_64"
CHECK_SECONDS = 30.0
"""For each request of a check; a quarter of a second, with software emulation on an idle machine."""


class QemuProvider:
    """Virtual machines on this machine; its options are `QemuOptions`."""

    needs_reset = True
    option_names = frozenset(QemuOptions.model_fields)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = QemuOptions.model_validate(dict(options))
        self._processes: dict[str, QemuProcess] = {}
        self._lock = threading.Lock()
        self._preparing = threading.Lock()
        self._machine_type: MachineType | None = None
        self._kvm_failed = ""
        """How KVM failed; empty while it has not."""
        self._relay = Relay()

    def check_available(self) -> None:
        """Makes sure that QEMU is installed, and that the user's own image, if given, can be booted.

        Raises:
            ProviderError: Something is missing; one sentence says what and what to do.
        """
        _command(QEMU, "qemu-system-x86")
        _command("qemu-img", "qemu-utils")
        if self.options.goes_out:
            if os.geteuid() != 0:
                raise ProviderError("a network for guests needs root: start the VM host as root")
            check_commands()
        if self.options.path_to_vm is not None:
            own_boot(self.options.path_to_vm, self.options)

    def image_name(self) -> str:
        """Returns the name of its profile's guest image, or of the user's own, with the guests' network policy."""
        user_image = self.options.path_to_vm
        image = guest_image_name(self.options.profile) if user_image is None else own_image_name(user_image)
        return with_network(image, self.options.guest_network)

    def boot(self, vm_id: str) -> Endpoint:
        """Starts a VM and waits until its server answers; first builds the guest image if it is missing."""
        machine = QemuProcess(vm_id, self._network())
        with self._lock:
            earlier, self._processes[vm_id] = self._processes.get(vm_id), machine
        if earlier is not None:
            earlier.end()
        try:
            with machine.stoppable():
                self._start(machine)
        except BaseException:
            machine.end()
            raise
        return self._endpoint(machine)

    def _network(self) -> PrivateNetwork | None:
        policy = parse_policy(self.options.guest_network)
        if policy.reaches_anything:
            return InternetAccess(self._relay, policy)
        return PrivateNetwork() if can_make_namespaces() else None

    def _start(self, machine: QemuProcess) -> None:
        """Starts a machine; uses software emulation if KVM turns out not to work and was not requested."""
        machine_type = self._known_machine_type(machine)
        try:
            machine_type.start(machine, StartProgress(machine))
        except ProcessorFailed:
            if self.options.accelerator != "auto":
                raise
            machine.put_away()
            self._give_up_kvm(machine_type)
            self._known_machine_type(machine).start(machine, StartProgress(machine))

    def _give_up_kvm(self, machine_type: MachineType) -> None:
        """Stops using KVM for these VMs; if our own guest image does not start, for all of this machine."""
        with self._preparing:
            if self._machine_type is not machine_type:
                return
            self._machine_type = None
            self._kvm_failed = f"KVM could not go on booting {machine_type.what} (QEMU's state: internal-error)"
            if self.options.path_to_vm is None:
                try:
                    acceleration.remember(_command(QEMU, "qemu-system-x86"), self._kvm_failed)
                except OSError as error:
                    log.warning("cannot note that KVM does not work, which will be found out again: %s", error)

    def check(self, vm_id: str) -> None:
        """Raises unless the guest is healthy and its screenshot has the right size."""
        machine = self._machine(vm_id)
        with machine.stoppable():
            self._known_machine_type(machine).check(machine, CHECK_SECONDS)

    def reset(self, vm_id: str) -> Endpoint:
        """Loads the snapshot of the VM's memory and disk from when it was first ready."""
        machine = self._machine(vm_id)
        with machine.stoppable():
            self._known_machine_type(machine).revert(machine)
        return self._endpoint(machine)

    def stop(self, vm_id: str) -> None:
        """Ends the VM, even if an earlier process started it."""
        with self._lock:
            machine = self._processes.pop(vm_id, None)
        if machine is not None:
            machine.end()
        else:
            end_leftover(vm_id)

    def connect(self, vm_id: str, purpose: str) -> socket.socket:
        """Opens a new connection to one of the VM's ports; when QEMU has its own network, no address leads there."""
        return self._machine(vm_id).connect(purpose)

    def fingerprint(self, vm_id: str) -> Mapping[str, Sequence[str]]:
        """Returns processes and windows; every reset restores the whole disk."""
        machine = self._machine(vm_id)
        with machine.stoppable():
            return self._known_machine_type(machine).fingerprint(machine, CHECK_SECONDS)

    def reap_leftovers(self, host_id: str) -> Sequence[str]:
        """Ends the VMs of a predecessor of this host, at whatever step it died, and abandoned ones."""
        left = leftovers(host_id)
        wait_until_unused(map(folder_of, left))
        return [*end_each(left, end_leftover), *end_abandoned()]

    def _endpoint(self, machine: QemuProcess) -> Endpoint:
        return Endpoint("" if self.options.goes_out else "127.0.0.1", machine.ports)

    def _machine(self, vm_id: str) -> QemuProcess:
        with self._lock:
            machine = self._processes.get(vm_id)
        if machine is None:
            raise QemuStopped(f"{vm_id} is not running")
        return machine

    def _known_machine_type(self, machine: QemuProcess) -> MachineType:
        """Returns the machine type of this provider's VMs; the first VM that starts creates it and the guest image."""
        while not self._preparing.acquire(timeout=0.2):
            if machine.stopped:
                raise QemuStopped(f"{machine.vm_id} was stopped before it started")
        try:
            if self._machine_type is None:
                self.check_available()
                qemu = _command(QEMU, "qemu-system-x86")
                chosen = (
                    Acceleration("tcg", self._kvm_failed)
                    if self._kvm_failed
                    else acceleration.choose(self.options.accelerator, qemu)
                )
                if chosen.name == "tcg":
                    log.warning("QEMU uses software emulation, which is slow: %s", chosen.why)
                else:
                    log.info("QEMU uses the processor's own virtualisation (KVM)")
                self._machine_type = MachineType(qemu, self.options, chosen, self._what_to_boot(machine))
            return self._machine_type
        finally:
            self._preparing.release()

    def _what_to_boot(self, machine: QemuProcess) -> GuestBoot | OwnBoot:
        if self.options.path_to_vm is not None:
            return own_boot(self.options.path_to_vm, self.options)
        return GuestBoot(guest_disk(self.options.profile, StartProgress(machine)))


class StartProgress:
    """Logs how a machine's start gets on: each step when it begins, and again every few seconds while it goes on."""

    def __init__(self, machine: QemuProcess) -> None:
        self._machine = machine
        self._step = ""
        self._said = 0.0

    def __call__(self, sentence: str) -> None:
        """Takes a sentence such as ``Unpacking packages: 3 of 900``; what is before the colon is the step.

        Raises:
            QemuStopped: The machine is to stop.
        """
        if self._machine.stopped:
            raise QemuStopped(f"{self._machine.vm_id} was stopped before it was up")
        step, now = sentence.partition(":")[0], time.monotonic()
        if step != self._step or now - self._said >= SAY_EVERY_SECONDS:
            self._step, self._said = step, now
            log.info("%s", sentence)


def _command(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ProviderError(f"provider 'qemu' needs {name}, which is not installed: apt-get install {package}")
    return found
