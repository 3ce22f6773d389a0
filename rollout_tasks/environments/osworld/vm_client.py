"""The HTTP client for a VM: each request has a deadline, and a VM that stops answering is noticed at once.

desktop-env calls `requests` without timeouts, retries where that cannot help, and hides errors. Its modules get the
`requests` and `time` of this module instead (`install`). Requests to a VM go through its `VMClient`; all others may
only reach the internet.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from rollout_tasks.environments.osworld import public_http
from rollout_tasks.environments.osworld.guest_http import GuestSession

CONNECT_SECONDS = 5.0
PROBE_SECONDS = 5.0
SILENT_SECONDS = 10.0
"""How long a VM may be busy with a request before a probe asks whether it still answers, and between two probes."""
LONG_SLEEP_SECONDS = 3.0
"""The VM is also probed after desktop-env sleeps this long, as between two tries to reach a guest's browser."""
REFUSED_AGAIN_SECONDS = 0.5
"""A refused connection is tried once more after this: a server may be restarting."""
ELSEWHERE_SECONDS = (10.0, 60.0)
"""For connecting to, and silence of, anything that is not the VM's control server."""
DEFAULT_SECONDS = 30.0
PICTURE_SECONDS = 40.0
"""For a screenshot, whatever desktop-env allows: a VM that answers other requests is only slow, as on a busy host."""
ANSWER_SECONDS = {
    "/screenshot": PICTURE_SECONDS,
    "/accessibility": 40.0,
    "/terminal": 40.0,
    "/platform": 15.0,
    "/execute": 130.0,
    "/setup/execute": 130.0,
    "/setup/execute_with_verification": 250.0,
    "/run_python": 130.0,
    "/run_bash_script": 130.0,
    "/setup/open_file": 130.0,
    "/setup/upload": 300.0,
    "/file": 120.0,
    "/list_directory": 40.0,
    "/start_recording": 15.0,
    "/end_recording": 170.0,
}
"""How long a VM may be silent during a request, in seconds; a little longer than its own deadlines."""


class VMUnreachable(BaseException):
    """The VM no longer answers, or something else does in its place. Not an `Exception`: desktop-env ignores those."""


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A request that the VM's server answered with an error."""

    path: str
    status: int
    body: str


class RequestRefused(Exception):
    """The VM's server refused a request that it must accept."""


class VMClient:
    """Sends the requests to one VM, from `open` to `close`: to its control server and to its other ports."""

    def __init__(self, address: str, port: int, others: Collection[int] = ()) -> None:
        """Sends nothing yet.

        Args:
            address: Where the VM answers.
            port: The port of its control server.
            others: The VM's other ports.
        """
        self.origin = f"http://{address}:{port}"
        self._places = {f"{address}:{one}" for one in (port, *others)}
        self.lost = ""
        """Why the VM counts as gone; empty while it answers."""
        self.error_responses: list[ErrorResponse] = []
        self.must_accept: frozenset[str] = frozenset()
        """Paths whose refusal raises `RequestRefused`: nothing may follow it."""
        self._session = GuestSession()

    def open(self) -> None:
        """Routes desktop-env's requests to the VM through here."""
        _vm_clients.update(dict.fromkeys(self._places, self))

    def close(self) -> None:
        """Stops routing them through here."""
        for place in self._places:
            _vm_clients.pop(place, None)
        self._session.close()

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        """Sends one request.

        Raises:
            VMUnreachable: The VM does not answer, now or since an earlier request.
            RequestRefused: The VM's server refused a request that it must accept.
            requests.RequestException: The VM answers, but this request failed.
        """
        self.check()
        if not url.startswith(f"{self.origin}/"):  # another port does not tell whether the VM is alive
            return self._session.request(method, url, **{**options, "timeout": ELSEWHERE_SECONDS})
        path = urlsplit(url).path
        given = options.get("timeout") if path != "/screenshot" else None
        options["timeout"] = (CONNECT_SECONDS, _shorter(given, ANSWER_SECONDS.get(path)))
        try:
            response = self._connected(method, url, options)
        except requests.ReadTimeout as error:
            self.probe(f"{path} was not answered within {options['timeout'][1]:g} s")
            raise error
        except requests.ConnectionError as error:
            self.probe(f"the connection broke at {path}")
            raise error
        if 300 <= response.status_code < 400:
            self.distrust(f"{path} was answered with a redirect (HTTP {response.status_code})")
        if response.status_code >= 400:
            self.error_responses.append(ErrorResponse(path, response.status_code, response.text[:500]))
            if path in self.must_accept:
                raise RequestRefused(f"{path} answered HTTP {response.status_code}: {response.text[:500]}")
        return response

    def check(self) -> None:
        """Raises if the VM is gone.

        Raises:
            VMUnreachable: It is gone.
        """
        if self.lost:
            raise VMUnreachable(self.lost)

    def lose(self, why: str) -> None:
        """Notes that the VM is gone.

        Raises:
            VMUnreachable: Always.
        """
        self.lost = self.lost or f"the VM at {self.origin} does not answer: {why}"
        self.check()

    def distrust(self, why: str) -> None:
        """Notes that something else answers instead of the VM's server.

        Raises:
            VMUnreachable: Always.
        """
        self.lost = f"what answers at {self.origin} is not the VM's server: {why}"
        self.check()

    def _connected(self, method: str, url: str, options: Mapping[str, Any]) -> requests.Response:
        """Sends one request, and a second one if no connection was made."""
        try:
            return self._watched(method, url, options)
        except requests.ConnectionError as error:
            if not _never_sent(error):
                raise
        time.sleep(REFUSED_AGAIN_SECONDS)
        try:
            return self._watched(method, url, options)
        except requests.ConnectionError as error:
            if _never_sent(error):
                self.lose("it accepts no connection")
            raise

    def _watched(self, method: str, url: str, options: Mapping[str, Any]) -> requests.Response:
        """Sends one request. Until it is answered, the VM must answer probes: a frozen VM is noticed long before the
        deadline of, say, a command that may take two minutes.
        """
        if options["timeout"][1] <= 2 * SILENT_SECONDS:
            return self._session.request(method, url, **options)
        answer: Future[requests.Response] = Future()

        def send() -> None:
            try:
                answer.set_result(self._session.request(method, url, **options))
            except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
                answer.set_exception(error)

        threading.Thread(target=send, name="request to a VM", daemon=True).start()
        while True:
            try:
                return answer.result(SILENT_SECONDS)
            except TimeoutError:
                if answer.done():  # just now, or with this error
                    return answer.result()
                self.probe(f"{urlsplit(url).path} is not answered, and nothing else is")

    def probe(self, problem: str) -> None:
        """Asks whether the VM still answers.

        Args:
            problem: Why it is asked; part of the error's message.

        Raises:
            VMUnreachable: It does not.
        """
        self.check()
        try:
            with closing(GuestSession()) as session:
                session.request("GET", f"{self.origin}/platform", timeout=(CONNECT_SECONDS, PROBE_SECONDS))
        except requests.RequestException:
            self.lose(problem)


def install() -> None:
    """Gives every module of desktop-env imported so far the `requests` and `time` of this module."""
    for name, module in list(sys.modules.items()):
        if name.startswith("desktop_env.") and not name.startswith("desktop_env.providers"):
            if getattr(module, "requests", None) is requests:
                module.requests = REQUESTS  # type: ignore[attr-defined]
            if getattr(module, "time", None) is time:
                module.time = _TIME  # type: ignore[attr-defined]


_vm_clients: dict[str, VMClient] = {}
"""By host and port. A worker process has one at a time."""


def vm_client_of(url: str) -> VMClient | None:
    """Returns the client of the VM that a URL leads to; None if it leads to none."""
    return _vm_clients.get(urlsplit(url).netloc)


class _Requests(ModuleType):
    """Replaces `requests`, as far as desktop-env uses it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(requests, name)

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        """See `requests.request`."""
        if (client := vm_client_of(url)) is not None:
            return client.request(method, url, **options)
        return public_http.request(method, url, **{**options, "timeout": ELSEWHERE_SECONDS})

    def get(self, url: str, params: Any = None, **options: Any) -> requests.Response:
        """See `requests.get`."""
        return self.request("GET", url, params=params, **options)

    def post(self, url: str, data: Any = None, json: Any = None, **options: Any) -> requests.Response:
        """See `requests.post`."""
        return self.request("POST", url, data=data, json=json, **options)


class _Time(ModuleType):
    """Replaces `time`: its sleep raises if the VM is gone, as some loops catch everything, sleep and go on."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        """See `time.sleep`."""
        for vm in _vm_clients.values():
            vm.check()
        time.sleep(seconds)
        if seconds >= LONG_SLEEP_SECONDS:
            for vm in list(_vm_clients.values()):
                vm.probe("nothing is answered")


REQUESTS = _Requests("requests")
"""For code that talks to a VM as desktop-env does."""
_TIME = _Time("time")


def _shorter(given: Any, usual: float | None) -> float:
    wanted = given[-1] if isinstance(given, tuple) else given
    usual = usual or DEFAULT_SECONDS
    return min(float(wanted), usual) if isinstance(wanted, int | float) else usual


def _never_sent(error: requests.ConnectionError) -> bool:
    """Returns whether the request cannot have reached the server."""
    reason = error.args[0] if error.args else None
    return isinstance(
        getattr(reason, "reason", None), urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError
    )
