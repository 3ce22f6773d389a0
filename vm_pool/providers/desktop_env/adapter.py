"""What a keeper wants of one of desktop-env's providers: the base of its adapters, their settings and their errors.

Any call here may hang or never end; the keeper's process can be ended from outside.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vm_pool.providers.program_output import in_one_line

log = logging.getLogger(__name__)

USUAL_SNAPSHOT = "init_state"
"""OSWorld's name for a VM's clean state."""
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


def words_of(error: BaseException) -> str:
    """Returns an error's message on one line and without colours."""
    return in_one_line(str(error)) or type(error).__name__
