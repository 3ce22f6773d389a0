"""Adapters for desktop-env's providers, inside a keeper: what each one needs, and fixes for what it hides.

Any call here may hang or never end; the keeper's process can be ended from outside.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vm_pool.providers.program_output import in_one_line

log = logging.getLogger(__name__)

LABEL = "computer-use-rollouts.vm"
"""The label of a docker container; its value is the VM's id."""
COMMAND_PAUSE_SECONDS = 0.5
"""Between two checks of a VM that starts; also replaces waits after commands, which have ended by then."""
USUAL_SNAPSHOT = "init_state"
"""OSWorld's name for a VM's clean state."""
_ACCOUNT_SECONDS = 5
"""For finding out whose an account is: in some private networks nothing answers."""
_SDK_OF = {"volcenginesdkcore": "volcengine-python-sdk", "volcenginesdkecs": "volcengine-python-sdk"}


class Unavailable(Exception):
    """Something is missing on this machine, or in its environment; the message is one sentence."""


class Gone(Exception):
    """There is no VM of a path in the account that was asked; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class VMSettings:
    """The settings of one VM; the same as the options of these names."""

    vm_id: str
    paths: tuple[str, ...]
    region: str | None
    snapshot_name: str
    headless: bool
    os_type: str
    screen: tuple[int, int]


class Adapter:
    """An adapter for one of desktop-env's providers.

    Args:
        name: The provider's name.
        settings: The VM's settings.

    Raises:
        Unavailable: It cannot be used here.
    """

    tools: tuple[tuple[str, str], ...] = ()
    """Commands that it runs, and where each comes from."""
    provider_class = manager_class = ""
    takes_region = False
    can_find = True
    """Whether it can find or make a VM when no path is given."""
    deletes_vms = False
    """Whether reverting and stopping delete a VM, so that none can be named: it would be gone after its first use."""
    shares_path = False
    """Whether several VMs are made from one path."""
    revert_before_use = False
    """Whether a VM that was just started still has the state that it was stopped in."""
    has_snapshots = True
    """Whether VMs are reverted to a snapshot by its name."""
    advice = ""
    """What to do if its provider cannot be made."""

    def __init__(self, name: str, settings: VMSettings) -> None:
        self.name = name
        self.settings = settings
        for tool, source in self.tools:
            if shutil.which(tool) is None:
                raise Unavailable(f"provider {name!r} needs the command {tool}, which comes with {source}")
        if not settings.paths and not self.can_find:
            raise Unavailable(f"provider {name!r} finds no VM by itself: name one with path_to_vm")
        if settings.paths and self.deletes_vms:
            raise Unavailable(
                f"provider {name!r} deletes its instances when they are reverted or stopped, and makes new ones:"
                " leave path_to_vm out"
            )
        module = f"desktop_env.providers.{name}"
        self.module = self._import(f"{module}.provider")
        self.manager_module = self._import(f"{module}.manager")
        self.prepare()
        try:
            provider = getattr(self.module, self.provider_class)
            self.provider: Any = provider(self.region) if self.takes_region else provider()
        except Exception as error:
            raise Unavailable(f"provider {name!r} cannot be used here: {words_of(error)}{self.advice}") from error

    @property
    def region(self) -> str | None:
        """The region of the VMs."""
        return self.settings.region

    @property
    def reuses_vms(self) -> bool:
        """Whether one path leads to the same VM for one keeper after another."""
        return not (self.shares_path or self.deletes_vms)

    @property
    def reverts_at_start(self) -> bool:
        """Whether to revert a VM that was just started: it may not be in the state of the wanted snapshot."""
        return self.revert_before_use or (self.has_snapshots and self.settings.snapshot_name != USUAL_SNAPSHOT)

    def prepare(self) -> None:
        """Patches desktop-env before its provider is created."""

    def find(self) -> str:
        """Finds an existing VM, or makes one; returns its path."""
        manager = getattr(self.manager_module, self.manager_class)()
        path = manager.get_vm_path(os_type=self.settings.os_type, region=self.region, screen_size=self.settings.screen)
        if not path:
            raise RuntimeError(f"provider {self.name!r} found no VM")
        return str(path)

    def start(self, path: str) -> None:
        """Powers a VM on; does nothing when it runs."""
        self.provider.start_emulator(path, self.settings.headless, self.settings.os_type)

    def revert(self, path: str) -> str:
        """Reverts a VM to its clean state, which may leave it off; returns its path from then on."""
        return str(self.provider.revert_to_snapshot(path, self.snapshot()) or path)

    def snapshot(self) -> str:
        """Returns the name of the snapshot that VMs are reverted to."""
        return self.settings.snapshot_name

    def address(self, path: str) -> str:
        """Returns ``ip`` or ``ip:server:chromium:vnc:vlc``."""
        address: str = self.provider.get_ip_address(path)
        if not address:
            raise RuntimeError(f"{path} has no address")
        return address

    def stop(self, path: str) -> None:
        """Powers a VM off; in a cloud, this deletes it.

        Raises:
            Gone: There is no such VM.
        """
        self.provider.stop_emulator(path)

    def account(self) -> str | None:
        """Returns a name of where VMs are looked for: one that is gone here may run elsewhere. None if unknown."""
        return ""

    def _import(self, module: str) -> Any:
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name and error.name.split(".")[0] == "desktop_env":
                raise Unavailable(
                    f"provider {self.name!r} needs the package desktop-env: "
                    "uv pip install --require-hashes -r requirements-osworld.lock"
                ) from error
            package = _SDK_OF.get(str(error.name), str(error.name))
            raise Unavailable(
                f"provider {self.name!r} needs a package that is not installed: pip install {package}"
            ) from error
        except Exception as error:
            raise Unavailable(f"provider {self.name!r} cannot be used here: {words_of(error)}") from error


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


class AWS(Adapter):
    """EC2 instances."""

    provider_class, manager_class, takes_region = "AWSProvider", "AWSVMManager", True
    deletes_vms = True

    @property
    def region(self) -> str | None:
        """The option's region, otherwise the environment's."""
        return self.settings.region or os.environ.get("AWS_REGION")

    def snapshot(self) -> str:
        """Returns an AMI; ``init_state`` stands for the AMI that instances are made from."""
        if self.settings.snapshot_name != USUAL_SNAPSHOT:
            return self.settings.snapshot_name
        images: Mapping[Any, Mapping[Any, str]] = self.manager_module.IMAGE_ID_MAP
        try:
            return images[self.region][self.settings.screen]
        except KeyError as error:
            size = "{}x{}".format(*self.settings.screen)
            raise RuntimeError(
                f"OSWorld has no AMI for region {self.region} and screen {size}: name yours with snapshot_name"
            ) from error

    def stop(self, path: str) -> None:
        """Terminates an instance. EC2 soon forgets one that was terminated, and never knows another account's."""
        try:
            super().stop(path)
        except Exception as error:
            answer = getattr(error, "response", None)  # of botocore's ClientError
            if not isinstance(answer, Mapping) or answer.get("Error", {}).get("Code") != "InvalidInstanceID.NotFound":
                raise
            raise Gone(words_of(error)) from error

    def account(self) -> str | None:
        """Returns the account's number, which needs no permission, unlike anything else about an account."""
        hasty = import_module("botocore.config").Config(
            connect_timeout=_ACCOUNT_SECONDS, read_timeout=_ACCOUNT_SECONDS, retries={"total_max_attempts": 1}
        )
        try:
            sts = self.module.boto3.client("sts", region_name=self.region, config=hasty)
            return str(sts.get_caller_identity()["Account"])
        except Exception as error:  # noqa: BLE001 (the border to AWS: a network without a way to this service, for one)
            log.warning("the account is unknown: %s", error)
            return None


class Azure(Adapter):
    """Azure VMs, named ``RESOURCE_GROUP/VM``. Stopping one keeps its disk."""

    provider_class, manager_class, takes_region = "AzureProvider", "AzureVMManager", True
    can_find = False
    revert_before_use = True

    def stop(self, path: str) -> None:
        """Deallocates a VM."""
        try:
            super().stop(path)
        except self.module.ResourceNotFoundError as error:
            raise Gone(words_of(error)) from error

    def account(self) -> str | None:
        """Returns the subscription."""
        return str(self.provider.subscription_id)


class Aliyun(Adapter):
    """Alibaba Cloud's ECS instances."""

    provider_class, manager_class = "AliyunProvider", "AliyunVMManager"
    deletes_vms = True
    has_snapshots = False

    def stop(self, path: str) -> None:
        """Deletes an instance."""
        try:
            super().stop(path)
        except Exception as error:
            if getattr(error, "code", None) != "InvalidInstanceId.NotFound":
                raise
            raise Gone(words_of(error)) from error

    def account(self) -> str | None:
        """Returns a hash of the key and the region, which is the environment's."""
        key = f"{os.environ.get('ALIYUN_ACCESS_KEY_ID')} {self.provider.region}"
        return hashlib.sha256(key.encode()).hexdigest()[:16]


class Volcengine(Adapter):
    """Volcengine's ECS instances."""

    provider_class, manager_class = "VolcengineProvider", "VolcengineVMManager"
    deletes_vms = True
    has_snapshots = False


ADAPTERS: Mapping[str, type[Adapter]] = {
    "vmware": VMware,
    "virtualbox": VirtualBox,
    "docker": Docker,
    "aws": AWS,
    "azure": Azure,
    "aliyun": Aliyun,
    "volcengine": Volcengine,
}


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


def words_of(error: BaseException) -> str:
    """Returns an error's message on one line and without colours."""
    return in_one_line(str(error)) or type(error).__name__
