"""The provider `local`: each desktop is an OCI container on this machine, on an overlay of the guest image."""

from __future__ import annotations

import itertools
import logging
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from desktop_image import GuestRoot, guest_image_name, guest_root
from vm_pool.egress.relay import Relay
from vm_pool.providers import guest_server
from vm_pool.providers.base import with_network
from vm_pool.providers.folder_lock import wait_until_unused
from vm_pool.providers.leftovers import end_each
from vm_pool.providers.local.container import Container, DesktopStopped
from vm_pool.providers.local.folders import end_abandoned, end_leftover, end_stopped_keepers, folder_of, leftovers
from vm_pool.providers.local.options import LocalOptions
from vm_pool.providers.local.requirements import HostFeatures, check_machine, inspect_host
from vm_pool.states import Endpoint

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
SAY_EVERY_SECONDS = 5.0
"""How often the progress of a guest image's build is logged."""
CHECK_SECONDS = 5.0
"""For each request of a check."""
FILES_LOOKED_AT = 100
"""The most written files that a fingerprint names."""
_SESSION_WRITES = re.compile(
    r"/etc/hosts|/home/user/(\.Xauthority|\.(cache|dbus|pki)/.*|\.local/(share|state)/.*"
    r"|\.config/(dconf|gtk-3\.0|ibus|openbox|pulse|Thunar|xfce4)/.*)"
).fullmatch
"""What the session itself writes, some of it only seconds after its start."""
_LOOK_SECONDS = 0.05
"""Between two checks of a desktop that starts."""


class LocalProvider:
    """Containers without a daemon; its options are `LocalOptions`."""

    needs_reset = True
    option_names = frozenset(LocalOptions.model_fields)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = LocalOptions.model_validate(dict(options))
        self._screen = (self.options.screen_width, self.options.screen_height)
        self._containers: dict[str, Container] = {}
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._looking = threading.Lock()
        self._machine: HostFeatures | None = None
        self._relay = Relay()
        self._root: GuestRoot | None = None

    def check_available(self) -> None:
        """Makes sure that this machine can run local desktops.

        Raises:
            ProviderError: It cannot; one sentence says what is missing and what to do.
        """
        check_machine(self.options)

    def image_name(self) -> str:
        """Returns the name of its profile's guest image, with the desktops' network policy."""
        return with_network(guest_image_name(self.options.profile), self.options.guest_network)

    def boot(self, vm_id: str) -> Endpoint:
        """Starts a desktop and waits until its server answers; first builds the guest image if it is missing."""
        with self._lock:
            earlier = self._containers.pop(vm_id, None)
        if earlier is not None:
            earlier.end()
        return self._start(vm_id, instead_of=None)

    def check(self, vm_id: str) -> None:
        """Raises unless the guest is healthy, its server is unchanged, and its screenshot has the right size."""
        container = self._container(vm_id)
        if altered := container.alterations():
            raise guest_server.DesktopUnwell(f"{vm_id}: {'; '.join(altered)}")
        control = self._control(container)
        guest_server.health(control, CHECK_SECONDS)
        _, size = guest_server.screenshot(control, CHECK_SECONDS)
        if size != self._screen:
            expected = f"{self._screen[0]}x{self._screen[1]}"
            raise guest_server.DesktopUnwell(f"{vm_id}: the screenshot is {size[0]}x{size[1]}, not {expected}")

    def fingerprint(self, vm_id: str) -> Mapping[str, Sequence[str]]:
        """Returns its windows and processes, the files written since its start, and a hash of its screen."""
        container = self._container(vm_id)
        control = self._control(container)
        now = guest_server.health(control, CHECK_SECONDS)
        png, _ = guest_server.screenshot(control, CHECK_SECONDS, without_clock=True)
        files = itertools.islice(
            (path for path in container.changed_files() if not _SESSION_WRITES(path)), FILES_LOOKED_AT
        )
        return {
            "windows": now.windows,
            "processes": now.processes,
            "files": tuple(files),
            "screenshot": (guest_server.picture_hash(png),),
        }

    def reset(self, vm_id: str) -> Endpoint:
        """Kills every process of the desktop, discards what it wrote, and starts it again."""
        earlier = self._container(vm_id)
        earlier.end()
        return self._start(vm_id, instead_of=earlier)

    def stop(self, vm_id: str) -> None:
        """Ends the desktop, even if an earlier process started it."""
        with self._lock:
            container = self._containers.pop(vm_id, None)
        if container is not None:
            container.end()
        else:
            end_leftover(vm_id)

    def connect(self, vm_id: str, purpose: str) -> socket.socket:
        """Opens a new connection to one of the desktop's ports, which cannot be reached over any network."""
        return self._container(vm_id).connect(guest_server.PORTS[purpose], CONNECT_SECONDS)

    def alterations(self, vm_id: str) -> Sequence[str]:
        """Returns a sentence for each change of the desktop's server or its files since it was found healthy."""
        return self._container(vm_id).alterations()

    def reap_leftovers(self, host_id: str) -> Sequence[str]:
        """Ends the desktops of a predecessor of this host, at whatever step it died, and abandoned ones."""
        left = leftovers(host_id)
        wait_until_unused(map(folder_of, left))
        ended = [*end_each(left, end_leftover), *end_abandoned()]
        end_stopped_keepers()
        return ended

    def _start(self, vm_id: str, *, instead_of: Container | None) -> Endpoint:
        with self._looking:
            if self._machine is None:
                self._machine = inspect_host(self.options)
            machine = self._machine
        container = Container(vm_id, self.options, machine, self._relay)
        with self._lock:
            if self._containers.get(vm_id) is not instead_of:
                raise DesktopStopped(f"{vm_id} was stopped during its reset")
            self._containers[vm_id] = container
        try:
            container.start(self._image(container))
            self._wait_until_up(container)
            container.note_server()
        except BaseException:
            container.end()
            raise
        return Endpoint("", guest_server.PORTS)

    def _control(self, container: Container) -> guest_server.Connect:
        return lambda: container.connect(guest_server.PORTS["control"], CONNECT_SECONDS)

    def _container(self, vm_id: str) -> Container:
        with self._lock:
            container = self._containers.get(vm_id)
        if container is None:
            raise DesktopStopped(f"{vm_id} is not running")
        return container

    def _image(self, container: Container) -> GuestRoot:
        """Returns the guest image; the first desktop that starts builds it, and the others wait."""

        said_at = 0.0

        def progress(sentence: str) -> None:
            nonlocal said_at
            if container.stopped:
                raise DesktopStopped(f"{container.vm_id} was stopped while the guest image was built")
            if time.monotonic() - said_at > SAY_EVERY_SECONDS:
                said_at = time.monotonic()
                log.info("building the guest image %s, which takes minutes: %s", self.options.profile, sentence)

        while not self._building.acquire(timeout=0.2):
            if container.stopped:
                raise DesktopStopped(f"{container.vm_id} was stopped while the guest image was built")
        try:
            if self._root is None:
                self._root = guest_root(self.options.profile, progress)
            return self._root
        finally:
            self._building.release()

    def _wait_until_up(self, container: Container) -> None:
        deadline = time.monotonic() + self.options.start_seconds
        while True:
            try:
                guest_server.health(self._control(container), CHECK_SECONDS)
                return
            except guest_server.DesktopUnwell as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"{container.vm_id} is not ready within {self.options.start_seconds:.0f} s of its start: {error}; "
                        f"the last lines of its console: {container.console()}"
                    ) from error
            if not container.alive():
                if container.stopped:
                    raise DesktopStopped(f"{container.vm_id} was stopped while it started")
                raise RuntimeError(f"{container.vm_id} ended while it started")
            time.sleep(_LOOK_SECONDS)
