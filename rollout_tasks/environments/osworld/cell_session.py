"""The worker's side of a session in a cell: calls the cell, and checks all its answers."""

from __future__ import annotations

import builtins
import logging
import math
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rollout_tasks.cells.cell import CallFailed, Cell, CellEnded, Handled, Handlers
from rollout_tasks.cells.channel import PIECE
from rollout_tasks.cells.isolation import CellLimits
from rollout_tasks.cells.template_process import TemplateProcess
from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.base import Observation, VMAccess
from rollout_tasks.environments.osworld import accounts, public_http
from rollout_tasks.environments.osworld.attempt_files import WorkerFiles
from rollout_tasks.environments.osworld.downloads import DownloadCache
from rollout_tasks.environments.osworld.guest_http import LARGEST_ANSWER
from rollout_tasks.environments.osworld.guest_python import Action
from rollout_tasks.environments.osworld.named_hosts import named_hosts, named_urls
from rollout_tasks.environments.osworld.screenshot import size_of
from rollout_tasks.environments.osworld.session_results import CommandOutcome, DesktopView
from rollout_tasks.environments.osworld.task_files import files_of
from rollout_tasks.environments.osworld.vm_client import ELSEWHERE_SECONDS, VMUnreachable
from vm_pool.egress.addresses import public_addresses
from vm_pool.gate_client import Dialled, dial

logger = logging.getLogger(__name__)

PORTS: Mapping[str, int] = {"control": 5000, "chromium": 9222, "vnc": 8006, "vlc": 8080}
"""Where the VM answers, as seen from the cell: on the cell's own loopback."""
CONNECT_SECONDS = 10.0
MOST_TEXT = 8 << 20
"""Characters of an observation, or of what a command printed."""
MOST_MARKS = 10_000
_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""What a request from a cell may say; desktop-env's own requests say nothing. Others might lead it to another host."""
_LARGEST_PIXEL = 100_000
_PLAIN_ERRORS = [
    "AssertionError",
    "AttributeError",
    "FileNotFoundError",
    "ImportError",
    "IndexError",
    "KeyError",
    "MemoryError",
    "NotImplementedError",
    "OSError",
    "RuntimeError",
    "TimeoutError",
    "TypeError",
    "ValueError",
    "ZeroDivisionError",
]


class CellSession:
    """A session whose code runs in a cell."""

    def __init__(
        self,
        template: TemplateProcess,
        config: DesktopConfig,
        vm: VMAccess,
        task: Mapping[str, Any],
        files: WorkerFiles,
        *,
        proxy: bool,
        keep_log: bool,
        limits: CellLimits | None = None,
    ) -> None:
        """Touches nothing yet; arguments as in `session_opening.open_session`, and what the cell may use."""
        self._template = template
        self._config = config
        self._vm = vm
        self._task = task
        self._proxy = proxy
        self._keep_log = keep_log
        self._limits = limits
        self._hosts = named_hosts(task)
        self._named = named_urls(task)
        self._urls = {file.url for file in files_of(task)}
        self._cell: Cell | None = None
        self._handlers = Handlers({"file": self._file, "fetch": self._fetch}, {"log": files.log_bytes})

    def begin(self) -> DesktopView:
        """See `DesktopSession`."""
        DownloadCache().fetch_all(self._urls)  # before a cell waits for them
        ports = {name: port for name, port in PORTS.items() if name in self._vm.endpoint.ports}
        accounts_of_task = accounts.accounts_of(self._task, proxy=self._proxy)
        self._cell = Cell(
            self._template, ports=ports, dial=self._dial, hosts=accounts_of_task.hosts, limits=self._limits
        )
        return self._looked(
            "begin",
            config=self._config.model_dump(mode="json"),
            task=dict(self._task),
            proxy=self._proxy,
            keep_log=self._keep_log,
            settings=accounts_of_task.files,
        )[1]

    def act(self, action: Action | None, pause: float) -> tuple[CommandOutcome, DesktopView]:
        """See `DesktopSession`."""
        return self._looked("act", action=action, pause=pause)

    def take_recording(self, take: Callable[[bytes], object]) -> None:
        """See `DesktopSession`."""
        if self._cell is not None:
            self._call("take_recording", content_to=take)

    def score(self) -> float:
        """See `DesktopSession`."""
        value = self._call("score")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError("the evaluator gave no number")
        return float(value)

    def close(self) -> None:
        """See `DesktopSession`."""
        cell, self._cell = self._cell, None
        if cell is None:
            return
        try:
            cell.call("close", self._handlers)
        except (CellEnded, CallFailed) as error:
            logger.debug("a session was not closed in order: %s", error)
        finally:
            cell.close()

    def _looked(self, method: str, **arguments: Any) -> tuple[CommandOutcome, DesktopView]:
        """Calls a method that ends with a look at the desktop."""
        picture = bytearray()

        def take(piece: bytes) -> None:
            picture.extend(piece)
            if len(picture) > LARGEST_ANSWER:
                raise ValueError(f"the screenshot has more than {LARGEST_ANSWER >> 20} MiB")

        answer = self._call(method, content_to=take, **arguments)
        return _checked(answer, bytes(picture))

    def _call(self, method: str, content_to: Callable[[bytes], object] | None = None, **arguments: Any) -> Any:
        if self._cell is None:
            raise RuntimeError("begin must be called first")
        try:
            return self._cell.call(method, self._handlers, content_to, **arguments)
        except CallFailed as failure:
            if failure.kind == VMUnreachable.__name__:
                raise VMUnreachable(str(failure)) from failure
            if failure.kind in _PLAIN_ERRORS:
                raise getattr(builtins, failure.kind)(str(failure)) from failure
            raise RuntimeError(f"{failure.kind}: {failure}") from failure

    def _dial(self, name: str) -> socket.socket | Dialled:
        """Connects to the VM, or to a host of the task's accounts."""
        if name in PORTS:
            return dial(self._vm.endpoint, name)
        *others, last = public_addresses(name)
        for address in others:
            try:
                return socket.create_connection((address, 443), timeout=CONNECT_SECONDS)
            except OSError:
                continue
        return socket.create_connection((last, 443), timeout=CONNECT_SECONDS)

    def _file(self, url: Any) -> Handled:
        """Returns the file of a URL that the task names."""
        if url not in self._urls:
            raise ValueError("the task names no such file")
        return None, _pieces_of(DownloadCache().fetch(url).path)

    def _fetch(self, url: Any, headers: Any = None, params: Any = None) -> Handled:
        """Returns the answer of a host that the task names or that desktop-env asks by itself."""
        if not isinstance(url, str) or urlsplit(url).hostname not in self._hosts:
            raise ValueError("the task names no such host")
        if headers and not (isinstance(headers, dict) and all(map(_may_be_sent, headers.items()))):
            raise ValueError(f"no such header can be sent; known are {', '.join(sorted(_HEADERS))}")
        # A named file is often stored at another host. A page of the cell's choice may lead anywhere.
        as_named = url in self._named and not params
        response = public_http.request(
            "GET",
            url,
            timeout=ELSEWHERE_SECONDS,
            hosts=None if as_named else self._hosts,
            headers=headers,
            params=params,
        )
        described = {"status": response.status_code, "url": response.url, "headers": dict(response.headers)}
        return described, [response.content]


def _may_be_sent(header: tuple[Any, Any]) -> bool:
    name, value = header
    return name.lower() in _HEADERS and isinstance(value, str)


def _checked(answer: Any, picture: bytes) -> tuple[CommandOutcome, DesktopView]:
    """Returns an answer's outcome and view. The screen may have any size: an agent can change it.

    Raises:
        ValueError: It is not such an answer, or its picture shows another screen.
    """
    try:
        match answer:
            case {
                "ok": bool(ok),
                "output": str(output),
                "error": str(error),
                "text": str(text),
                "screen": [int(width), int(height)],
                "marks": marks,
                "pictured": bool(pictured),
            } if max(len(output), len(error), len(text)) <= MOST_TEXT:
                if not (0 < width < _LARGEST_PIXEL and 0 < height < _LARGEST_PIXEL):
                    raise ValueError(f"no screen has {width}x{height} pixels")
                if pictured and size_of(picture) != (width, height):
                    raise ValueError(f"the picture is not of a screen of {width}x{height} pixels")
                observation = Observation(text, (picture,) if pictured else ())
                return CommandOutcome(ok, output, error), DesktopView(observation, (width, height), _marks(marks))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the cell's answer cannot be used: {error}") from error
    raise ValueError("the cell's answer cannot be used")


def _marks(marks: Any) -> Mapping[int, tuple[int, int]] | None:
    if marks is None:
        return None
    found = {}
    for number, x, y in marks[:MOST_MARKS]:
        if not all(type(one) is int and 0 <= one < _LARGEST_PIXEL for one in (number, x, y)):
            raise ValueError("a mark has no position")
        found[number] = (x, y)
    return found


def _pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
