"""Asks a service that lends desktops as emulators: start, stop, status. What it answers is bounded, checked and not believed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

_LARGEST_ANSWER = 1 << 20
_LONGEST_SAID = 200
_ID = re.compile(r"[A-Za-z0-9._:-]{1,200}")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
PORTS = {"server_port": "control", "chromium_port": "chromium", "vnc_port": "vnc", "vlc_port": "vlc"}
"""Purposes of a desktop's ports, by the names in answers."""


class ServiceError(RuntimeError):
    """The service does not do what it was asked for: one sentence, without the token."""


class NoSuchEmulator(ServiceError):
    """The service does not know an emulator, or no longer."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """A desktop that was lent."""

    id: str
    ports: Mapping[str, int]
    """Port by purpose: ``control`` always, the others where the service has them."""


class EmulatorService:
    """One service, asked with one token."""

    def __init__(self, url: str, token: str, seconds: float) -> None:
        """Connects to nothing yet.

        Args:
            url: The service, without a slash at its end.
            token: Sent as a Bearer token.
            seconds: How long a request may take that waits for no desktop.
        """
        self._url = url
        self._token = token
        self._seconds = seconds

    def ping(self) -> None:
        """Makes sure that the service answers and takes the token.

        Raises:
            ServiceError: It does not.
        """
        self._ask("GET", "/emulators_by_token", self._seconds)

    def start(self, seconds: float, wanted: Callable[[], bool]) -> Emulator:
        """Has a desktop started; waits while all that the token may have are lent.

        Args:
            seconds: How long to wait.
            wanted: Whether to go on waiting.

        Raises:
            ServiceError: It cannot be started, or not in time.
        """
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
        while True:
            left = deadline - time.monotonic()
            try:
                return self._started(self._ask("POST", "/start_emulator", max(self._seconds, left), {}))
            except _Busy as busy:
                if left <= pause or not wanted():
                    waited = f" (after {seconds:g} s)" if left <= pause else ""
                    raise ServiceError(f"no desktop is free: {busy}{waited}") from busy
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def check(self, emulator_id: str) -> None:
        """Makes sure that a desktop is still lent.

        Raises:
            NoSuchEmulator: It is not.
            ServiceError: The service does not answer.
        """
        said = self._ask("GET", f"/emulator_status/{emulator_id}", self._seconds)
        status = said.get("status") if isinstance(said, dict) else None
        if status != "running":
            raise ServiceError(f"{self._url}: emulator {emulator_id} is {_shown(status)}, not running")

    def stop(self, emulator_id: str) -> bool:
        """Gives a desktop back; returns False if the service does not know it any more.

        Raises:
            ServiceError: The service does not answer, or refuses.
        """
        try:
            self._ask("POST", "/stop_emulator", self._seconds, {"emulator_id": emulator_id})
        except NoSuchEmulator:
            return False
        return True

    def _started(self, said: Any) -> Emulator:
        data = said.get("data") if isinstance(said, dict) else None
        found = data.get("emulator_id") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(found, str) or not _ID.fullmatch(found):
            raise ServiceError(f"{self._url}/start_emulator: it answers without an emulator_id: {_shown(said)}")
        ports = {purpose: data[name] for name, purpose in PORTS.items() if data.get(name) is not None}
        wrong = [port for port in ports.values() if type(port) is not int or not 0 < port < 1 << 16]
        if wrong or "control" not in ports:
            what = _shown(wrong[0]) if wrong else "no server_port"
            self.stop(found)
            raise ServiceError(f"{self._url}/start_emulator: emulator {found} has {what} among its ports")
        return Emulator(found, ports)

    def _ask(self, method: str, path: str, seconds: float, body: Mapping[str, Any] | None = None) -> Any:
        """Returns the answer of a request; redirects are not followed, as the token is for this service alone."""
        where, deadline = f"{self._url}{path}", time.monotonic() + seconds
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            with (
                httpx.Client(timeout=seconds, trust_env=False) as client,
                client.stream(method, where, json=body, headers=headers) as response,
            ):
                content = bytearray()
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > _LARGEST_ANSWER:
                        raise ServiceError(f"{where}: it answers with more than {_LARGEST_ANSWER >> 20} MiB")
                    if time.monotonic() > deadline:
                        raise httpx.ReadTimeout("slow")
                return self._read(where, response.status_code, bytes(content))
        except httpx.TimeoutException as error:
            raise ServiceError(f"{where}: no answer within {seconds:.0f} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ServiceError(f"{where}: it cannot be asked: {str(error) or type(error).__name__}") from error

    @staticmethod
    def _read(where: str, status: int, content: bytes) -> Any:
        try:
            said = json.loads(content)
        except (ValueError, RecursionError):
            said = content.decode("utf-8", "replace")
        code = said.get("code", 0) if isinstance(said, dict) else 0
        status = (
            code if status == 200 and code in (401, 403, 404, 429) else status
        )  # older services say it in the body alone
        message = _shown(said.get("message", said) if isinstance(said, dict) else said)
        if status == 404:
            raise NoSuchEmulator(f"{where}: HTTP 404: {message}")
        if status in {429, 503}:
            raise _Busy(f"{where}: HTTP {status}: {message}")
        if status in {401, 403}:
            raise ServiceError(f"{where}: HTTP {status}: the service does not take the token: {message}")
        if status != 200 or not isinstance(said, dict | list):
            raise ServiceError(f"{where}: HTTP {status}: {message}")
        return said


class _Busy(ServiceError):
    """All desktops that the token may have are lent."""


def _shown(value: Any) -> str:
    return ascii(value)[:_LONGEST_SAID]
