"""The provider: each VM is a desktop that a service lends, started for it and given back. To be reset is to be lent another one."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, ClassVar

from vm_pool.errors import ProviderError, VMsInUse
from vm_pool.providers.base import CONNECT_SECONDS
from vm_pool.providers.folder_lock import abandoned, wait_until_unused
from vm_pool.providers.guest_server import DesktopUnwell, screenshot
from vm_pool.providers.leftovers import end_each
from vm_pool.providers.remote.emulator_service import Emulator, EmulatorService, ServiceError
from vm_pool.providers.remote.options import TOKEN_VARIABLE, RemoteOptions, token
from vm_pool.providers.remote.port_connection import connected
from vm_pool.providers.remote.records import Record, folder_of, left_in, recorded, state_folder
from vm_pool.states import Endpoint

_SCREENSHOT_SECONDS = 30.0
log = logging.getLogger(__name__)


class RemoteProvider:
    """The provider `remote`; its options are `RemoteOptions`. The token comes from the environment."""

    option_names: ClassVar[Collection[str]] = tuple(RemoteOptions.model_fields)
    needs_reset = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Checks the options; asks nobody."""
        self.options = RemoteOptions.model_validate(dict(options))
        self._service = EmulatorService(self.options.url, token(), self.options.call_seconds)
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self._booting: set[str] = set()
        """VMs that have no record yet."""
        self._emulators: dict[str, Emulator] = {}

    def check_available(self) -> None:
        """Raises `ProviderError` unless the service answers and takes the token."""
        if self.options.through_service and find_spec("websockets") is None:
            raise ProviderError("through_service needs the package websockets: uv pip install websockets")
        if not token():
            raise ProviderError(f"provider remote needs the token of {self.options.url}: set {TOKEN_VARIABLE}")
        try:
            self._service.ping()
        except ServiceError as error:
            raise ProviderError(str(error)) from error

    def boot(self, vm_id: str) -> Endpoint:
        """Has a desktop started; waits while the token's quota is used up."""
        with self._lock:
            if vm_id in self._records or vm_id in self._booting:
                raise RuntimeError(f"{vm_id} is running already")
            self._booting.add(vm_id)
        try:
            self._end_leftover(vm_id)
            record = Record(vm_id)
            with self._lock:
                self._records[vm_id] = record
        finally:
            with self._lock:
                self._booting.remove(vm_id)
        return self._start(vm_id, record)

    def check(self, vm_id: str) -> None:
        """Raises unless the service still lends the desktop, and it shows a screenshot."""
        emulator = self._emulator(vm_id)
        self._service.check(emulator.id)
        try:
            screenshot(lambda: self.connect(vm_id, "control"), _SCREENSHOT_SECONDS)
        except DesktopUnwell as error:
            raise DesktopUnwell(f"emulator {emulator.id} of {self.options.url}: {error}") from error

    def connect(self, vm_id: str, purpose: str) -> socket.socket:
        """Returns a new connection to the desktop's port for a purpose, through the service if the options say so."""
        emulator = self._emulator(vm_id)
        if self.options.through_service:
            return connected(self.options.url, token(), emulator.id, purpose)
        return socket.create_connection((self.options.host, emulator.ports[purpose]), timeout=CONNECT_SECONDS)

    def reset(self, vm_id: str) -> Endpoint:
        """Gives the desktop back, and has another one started."""
        with self._lock:
            record, emulator = self._records.get(vm_id), self._emulators.get(vm_id)
        if record is None:
            raise RuntimeError(f"{vm_id} is not running")
        if emulator is not None:
            self._service.stop(emulator.id)
            with self._lock:
                self._emulators.pop(vm_id, None)
        return self._start(vm_id, record)

    def stop(self, vm_id: str) -> None:
        """Gives the desktop back; a start that is under way gives back what it gets."""
        with self._lock:
            record, emulator = self._records.pop(vm_id, None), self._emulators.pop(vm_id, None)
        if emulator is not None:
            try:
                self._service.stop(emulator.id)
            except ServiceError:
                with self._lock:  # to be tried again
                    self._emulators[vm_id] = emulator
                    if record is not None:
                        self._records[vm_id] = record
                raise
        elif record is None:
            self._end_leftover(vm_id)
        if record is not None:
            record.forget()

    def reap_leftovers(self, host_id: str) -> Sequence[str]:
        """Gives back what a killed predecessor had lent, and what killed hosts of other names had of the same service."""
        left = recorded(host_id)
        wait_until_unused(map(folder_of, left))
        ended = end_each(left, self._end_leftover)
        others = [folder.name for folder in abandoned(state_folder())]
        return [*ended, *end_each(filter(self._is_of_service, others), self._end_leftover)]

    def _start(self, vm_id: str, record: Record) -> Endpoint:
        record.write(self.options.url, "")
        emulator = self._service.start(self.options.start_seconds, lambda: self._records.get(vm_id) is record)
        with self._lock:
            wanted = self._records.get(vm_id) is record
            if wanted:
                record.write(self.options.url, emulator.id)
                self._emulators[vm_id] = emulator
        if not wanted:
            self._service.stop(emulator.id)
            raise RuntimeError(f"{vm_id} was stopped while it started")
        return Endpoint(self.options.host, emulator.ports)

    def _emulator(self, vm_id: str) -> Emulator:
        with self._lock:
            emulator = self._emulators.get(vm_id)
        if emulator is None:
            raise RuntimeError(f"{vm_id} is not running")
        return emulator

    def _is_of_service(self, vm_id: str) -> bool:
        with suppress(VMsInUse):  # another host is giving it back
            return any(url == self.options.url for url, _ in left_in(vm_id))
        return False

    def _end_leftover(self, vm_id: str) -> bool:
        """Gives back what an earlier process had; returns whether there was anything."""
        if not folder_of(vm_id).exists():
            return False
        ended = False
        for url, emulator_id in left_in(vm_id):
            if not emulator_id:
                log.warning(
                    "%s was being started by %s when its host was killed: look there what is lent to nobody", vm_id, url
                )
                continue
            ended = EmulatorService(url, token(), self.options.call_seconds).stop(emulator_id)
        with suppress(OSError):
            Record(vm_id).forget()
        return ended
