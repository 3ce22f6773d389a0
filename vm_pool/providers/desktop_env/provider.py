"""The providers of desktop-env, behind this project's provider interface."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from desktop_image.locks import locked
from vm_pool.errors import ProviderError
from vm_pool.providers import guest_server
from vm_pool.providers.desktop_env.abandoned import end_abandoned
from vm_pool.providers.desktop_env.keeper_client import KeeperClient, KeeperFailed, end_keepers_of
from vm_pool.providers.desktop_env.keeper_files import leftovers, lock_of, reaping_lock, record_of, recorded
from vm_pool.providers.desktop_env.options import DesktopEnvOptions
from vm_pool.providers.folder_lock import wait_until_unused
from vm_pool.providers.guest_server import DesktopUnwell
from vm_pool.providers.leftovers import end_each
from vm_pool.states import Endpoint

log = logging.getLogger(__name__)

CHECK_SECONDS = 30.0
"""For a screenshot of a running VM."""
CONNECT_SECONDS = 10.0
AVAILABLE_SECONDS = 60.0
"""For finding out whether a provider can be used here."""
SCREEN_SECONDS = 30.0
"""For the screen to get its size: a booting system may begin with another."""
_LOOK_SECONDS = 0.5
"""Between two checks of a VM that starts."""


class WrongScreen(DesktopUnwell):
    """A VM's screen has the wrong size."""


class DesktopEnvProvider:
    """VMs of one of desktop-env's providers; the options are `DesktopEnvOptions`."""

    name: ClassVar[str]
    makes_vms: ClassVar[bool] = False
    """Whether finding and reverting make VMs that are recorded only once they exist: then no keeper is killed meanwhile."""
    needs_reset = True
    option_names = frozenset(DesktopEnvOptions.model_fields)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = DesktopEnvOptions.model_validate(dict(options))
        self._keepers: dict[str, KeeperClient] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._lock = threading.Lock()

    def check_available(self) -> None:
        """Makes sure that desktop-env and all requirements of the provider are present.

        Raises:
            ProviderError: Something is missing; one sentence says what and what to do.
        """
        keeper = KeeperClient(self.name, f"check-{uuid.uuid4().hex}", self.options)
        try:
            keeper.ask("check", AVAILABLE_SECONDS)
        except KeeperFailed as error:
            raise ProviderError(str(error)) from error
        finally:
            record_of(self.name, keeper.vm_id).unlink(missing_ok=True)
            keeper.close()

    def boot(self, vm_id: str) -> Endpoint:
        """Finds a VM, starts it from its snapshot and waits until its server answers."""
        self.stop(vm_id)
        keeper = KeeperClient(self.name, vm_id, self.options, makes_vms=self.makes_vms)
        with self._lock:
            self._keepers[vm_id] = keeper
        began = time.monotonic()
        path = keeper.ask("find", self.options.find_seconds)
        log.info("%s: %s is %s, found after %.0f s", self.name, vm_id, path, time.monotonic() - began)
        return self._ready(keeper, keeper.ask("start", self.options.boot_seconds))

    def check(self, vm_id: str) -> None:
        """Raises unless a screenshot can be taken and has the size that the options ask for."""
        self._check(self._endpoint(vm_id), CHECK_SECONDS)

    def reset(self, vm_id: str) -> Endpoint:
        """Reverts the VM to its snapshot, which may create a new VM, and waits until its server answers."""
        keeper = self._keeper(vm_id)
        return self._ready(keeper, keeper.ask("revert", self.options.revert_seconds))

    def stop(self, vm_id: str) -> None:
        """Stops the VM, even if an earlier process started it.

        Raises:
            VMsInUse: Another living process uses it.
            KeeperFailed: It may still run, or is still being made and is stopped only then.
        """
        with self._lock:
            keeper = self._keepers.pop(vm_id, None)
            self._endpoints.pop(vm_id, None)
        if keeper is not None:
            self._stop(keeper)
        if record_of(self.name, vm_id).exists():  # of an earlier process, or of a keeper that was killed
            wait_until_unused([lock_of(self.name, vm_id)])
            end_keepers_of(self.name, vm_id, self.options.stop_seconds, kill=not self.makes_vms)
        if record_of(self.name, vm_id).exists():
            self._stop(KeeperClient(self.name, vm_id, self.options), raises=True)

    def reap_leftovers(self, host_id: str) -> Sequence[str]:
        """Stops the VMs of a predecessor of this host, and abandoned ones unless another process is doing so.

        Raises:
            VMsInUse: The predecessor still lives.
        """
        if not recorded(self.name):
            return []
        seconds = self.options.stop_seconds
        with locked(reaping_lock(self.name), seconds=seconds if leftovers(self.name, host_id) else 0.0) as alone:
            left = leftovers(self.name, host_id)
            wait_until_unused(lock_of(self.name, vm_id) for vm_id in left)
            others = [vm_id for vm_id in recorded(self.name) if vm_id not in left]
            ended = end_each(left, self.stop)
            return [*ended, *end_abandoned(self.name, others, seconds)] if alone else ended

    def _stop(self, keeper: KeeperClient, *, raises: bool = False) -> None:
        try:
            if keeper.busy:
                keeper.give_up()
            else:
                keeper.ask("stop", self.options.stop_seconds)
        except (KeeperFailed, ProviderError):
            keeper.give_up()
            if raises:
                raise
        finally:
            keeper.close()

    def _keeper(self, vm_id: str) -> KeeperClient:
        with self._lock:
            keeper = self._keepers.get(vm_id)
        if keeper is None:
            raise KeeperFailed(f"{vm_id} is not running")
        return keeper

    def _endpoint(self, vm_id: str) -> Endpoint:
        with self._lock:
            endpoint = self._endpoints.get(vm_id)
        if endpoint is None:
            raise KeeperFailed(f"{vm_id} is not running")
        return endpoint

    def _ready(self, keeper: KeeperClient, address: str) -> Endpoint:
        """Waits until a started VM returns a screenshot."""
        endpoint = _endpoint(address)
        deadline = time.monotonic() + self.options.boot_seconds
        wrong_until: float | None = None
        while True:
            try:
                self._check(endpoint, min(CHECK_SECONDS, max(deadline - time.monotonic(), 0.1)))
                break
            except WrongScreen:
                wrong_until = min(deadline, wrong_until or time.monotonic() + SCREEN_SECONDS)
                if time.monotonic() > wrong_until:
                    raise
            except DesktopUnwell as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{keeper.vm_id}: {self.name}: its server at {address} is not ready within "
                        f"{self.options.boot_seconds:.0f} s: {error}"
                    ) from error
            self._same(keeper)
            time.sleep(_LOOK_SECONDS)
        with self._lock:
            self._endpoints[keeper.vm_id] = endpoint
        self._same(keeper)
        return endpoint

    def _same(self, keeper: KeeperClient) -> None:
        """Raises if the VM was stopped since."""
        if self._keeper(keeper.vm_id) is not keeper:
            raise KeeperFailed(f"{keeper.vm_id} was stopped")

    def _check(self, endpoint: Endpoint, seconds: float) -> None:
        def connect() -> socket.socket:
            return socket.create_connection(
                (endpoint.address, endpoint.ports["control"]), min(seconds, CONNECT_SECONDS)
            )

        _, size = guest_server.screenshot(connect, seconds)
        wanted = (self.options.screen_width, self.options.screen_height)
        if size != wanted:
            raise WrongScreen(f"the screenshot is {size[0]}x{size[1]}, not {wanted[0]}x{wanted[1]}")


def _endpoint(address: str) -> Endpoint:
    """Parses an endpoint from ``ip`` or ``ip:server:chromium:vnc:vlc``."""
    host, *ports = address.split(":")
    if not ports:
        return Endpoint(host, guest_server.PORTS)
    control, chromium, vnc, vlc = map(int, ports)
    return Endpoint(host, {"control": control, "chromium": chromium, "vnc": vnc, "vlc": vlc})


_WITHOUT_SNAPSHOTS = DesktopEnvProvider.option_names - {"snapshot_name"}


class VMwareProvider(DesktopEnvProvider):
    """VMware Workstation or Fusion."""

    name = "vmware"


class VirtualBoxProvider(DesktopEnvProvider):
    """VirtualBox."""

    name = "virtualbox"


class DockerProvider(DesktopEnvProvider):
    """OSWorld's container, which holds QEMU."""

    name = "docker"
    option_names = _WITHOUT_SNAPSHOTS


class AWSProvider(DesktopEnvProvider):
    """EC2 instances."""

    name = "aws"
    makes_vms = True


class AzureProvider(DesktopEnvProvider):
    """Azure VMs."""

    name = "azure"


class AliyunProvider(DesktopEnvProvider):
    """Alibaba Cloud's instances."""

    name = "aliyun"
    option_names = _WITHOUT_SNAPSHOTS
    makes_vms = True


class VolcengineProvider(DesktopEnvProvider):
    """Volcengine's instances."""

    name = "volcengine"
    option_names = _WITHOUT_SNAPSHOTS
    makes_vms = True


class GCPProvider(DesktopEnvProvider):
    """Always refuses: desktop-env has this name, but no provider behind it."""

    name = "gcp"

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        raise ProviderError(
            "provider 'gcp' is a name in desktop-env with nothing behind it: use another one, or add your own"
        )
