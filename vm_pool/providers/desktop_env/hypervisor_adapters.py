"""Adapters for desktop-env's providers on this machine: VMware, VirtualBox and Docker."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from vm_pool.providers.desktop_env.adapter import Adapter, Gone

LABEL = "computer-use-rollouts.vm"
"""The label of a docker container; its value is the VM's id."""
COMMAND_PAUSE_SECONDS = 0.5
"""Between two checks of a VM that starts; also replaces waits after commands, which have ended by then."""


class VMware(Adapter):
    """VMware Workstation or Fusion, through its command ``vmrun``."""

    tools = (("vmrun", "VMware Workstation or Fusion"),)
    provider_class, manager_class, takes_region = "VMwareProvider", "VMwareVMManager", True
    revert_before_use = True

    def prepare(self) -> None:
        """Waits for commands and raises their failures: desktop-env ignores both, which would leave a VM dirty."""
        self.module.WAIT_TIME = COMMAND_PAUSE_SECONDS
        self.module.VMwareProvider._execute_command = staticmethod(_run_to_end)

    def stop(self, path: str) -> None:
        """Powers a VM off, by force if needed."""
        vmrun = ["vmrun", *self.module.get_vmrun_type(return_list=True)]
        with suppress(RuntimeError):
            self.provider.stop_emulator(path)
        running = _run_to_end([*vmrun, "list"], return_output=True) or ""
        if os.path.abspath(path) in [os.path.abspath(line) for line in running.splitlines()]:  # noqa: PTH100 (as desktop-env)
            _run_to_end([*vmrun, "stop", path, "hard"])


class VirtualBox(Adapter):
    """VirtualBox, through its command ``VBoxManage``."""

    tools = (("VBoxManage", "VirtualBox"),)
    provider_class, manager_class, takes_region = "VirtualBoxProvider", "VirtualBoxVMManager", True
    revert_before_use = True

    def prepare(self) -> None:
        """Removes the waits after commands, which have ended by then."""
        self.module.WAIT_TIME = COMMAND_PAUSE_SECONDS

    def stop(self, path: str) -> None:
        """Saves a VM's state and ends it, by force if needed."""
        with suppress(Exception):
            self.provider.stop_emulator(path)
        try:
            uuid = self.provider._get_vm_uuid(path)
        except (FileNotFoundError, RuntimeError) as error:  # a `raise` of nothing
            raise Gone(f"VirtualBox has no VM {path}") from error
        if uuid is None:
            raise RuntimeError("VBoxManage does not list its VMs")
        if f"{{{uuid}}}" in (_run_to_end(["VBoxManage", "list", "runningvms"], return_output=True) or ""):
            _run_to_end(["VBoxManage", "controlvm", uuid, "poweroff"])


class Docker(Adapter):
    """OSWorld's container, which runs QEMU with the user's own qcow2 file."""

    provider_class, manager_class, takes_region = "DockerProvider", "DockerVMManager", True
    advice = "; Docker must be installed and running (on Debian: apt-get install docker.io), or be named by DOCKER_HOST"
    shares_path = True
    has_snapshots = False

    def prepare(self) -> None:
        """Makes containers carry the VM's id from their creation on, and listen on this machine's loopback only."""
        self.module.WAIT_TIME = 0
        self.module.LOCK_TIMEOUT = (
            3600  # each VM holds the lock while its container starts, which may fetch an image first
        )
        collection = import_module("docker.models.containers").ContainerCollection
        run, label = collection.run, {LABEL: self.settings.vm_id}

        def run_labelled(containers: Any, image: str, *arguments: Any, **options: Any) -> Any:
            ports = {inside: ("127.0.0.1", port) for inside, port in options.pop("ports", {}).items()}
            return run(containers, image, *arguments, labels=label, ports=ports, **options)

        collection.run = run_labelled

    def start(self, path: str) -> None:
        """Starts a container, after removing everything of this VM that runs."""
        self.stop(path)
        super().start(path)

    def stop(self, path: str) -> None:  # noqa: ARG002 (the VM's label says more)
        """Removes every container of this VM: desktop-env keeps one that it fails to stop."""
        for container in self.provider.client.containers.list(
            all=True, filters={"label": f"{LABEL}={self.settings.vm_id}"}
        ):
            container.remove(force=True, v=True)
        self.provider.container = None

    def revert(self, path: str) -> str:
        """Does nothing: every start makes a new container, which is clean, as the image is read-only."""
        return path


def _run_to_end(command: Sequence[str], return_output: bool = False) -> str | None:
    """Runs a command; raises an error with its output when it fails."""
    with tempfile.TemporaryFile(
        "w+", errors="replace"
    ) as said:  # a pipe would stay open as long as the VM that it starts
        done = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, check=False)  # noqa: S603
        said.seek(0)
        output = said.read().strip()
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {output[-300:]}")
    return output if return_output else None
