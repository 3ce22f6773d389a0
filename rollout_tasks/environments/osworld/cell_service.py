"""The code in a cell: one session on a desktop, called by `cell_session.py`. Importing this imports desktop-env.

The template of the worker's cells imports it once, and each cell runs `serve`.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.cells.service import Answer, CellService, RequestFailed
from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.osworld import public_http
from rollout_tasks.environments.osworld.accounts import PROXY_SETTINGS
from rollout_tasks.environments.osworld.browser import stay_with_the_guest
from rollout_tasks.environments.osworld.cell_session import PORTS
from rollout_tasks.environments.osworld.session import AttachedSession
from rollout_tasks.environments.osworld.session_results import CommandOutcome, DesktopView
from vm_pool.states import Endpoint

stay_with_the_guest()  # once for all cells


class CellFiles:
    """An attempt's files, which the cell gets from the worker."""

    def __init__(self, service: CellService) -> None:
        self._service = service

    def place(self, url: str, target: Path) -> None:
        """Writes the file of a URL to a path."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            self._service.ask("file", {"url": url}, take=file.write)

    def log(self, text: str) -> None:
        """Sends text to the worker, for the attempt's log."""
        self._service.tell("log", text.encode(errors="replace"))


class _SessionService:
    """The methods that a worker may call."""

    def __init__(self, channel: MessageChannel) -> None:
        methods = {name: getattr(self, name) for name in ("begin", "act", "take_recording", "score", "close")}
        self.service = CellService(channel, methods)
        self._files = CellFiles(self.service)
        self._session: AttachedSession | None = None

    def begin(
        self,
        config: Mapping[str, Any],
        task: Mapping[str, Any],
        proxy: bool,
        keep_log: bool,
        settings: Mapping[str, str],
    ) -> Answer:
        for name, text in settings.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if proxy:
            importlib.import_module("desktop_env.providers.aws.proxy_pool").init_proxy_pool(PROXY_SETTINGS)
        desktop = DesktopConfig.model_validate(config)
        self._session = AttachedSession(
            desktop, Endpoint("127.0.0.1", PORTS), task, self._files, proxy=proxy, keep_log=keep_log
        )
        return _seen(CommandOutcome(ok=True), self._session.begin())

    def act(self, action: Any, pause: float) -> Answer:
        return _seen(*self._open.act(action, pause))

    def take_recording(self) -> Answer:
        pieces: list[bytes] = []
        self._open.take_recording(pieces.append)
        return None, pieces

    def score(self) -> Answer:
        return self._open.score(), None

    def close(self) -> Answer:
        self._open.close()
        return None, None

    @property
    def _open(self) -> AttachedSession:
        if self._session is None:
            raise RuntimeError("begin must be called first")
        return self._session


def serve(connection: socket.socket) -> None:
    """Serves a worker until it disconnects."""
    logging.getLogger().handlers.clear()
    os.environ.pop("PYTHONPATH", None)
    session = _SessionService(MessageChannel(connection))

    def send(method: str, url: str, options: dict[str, Any]) -> requests.Response:
        if method != "GET":
            raise requests.RequestException(f"{url}: nothing is sent to the internet, only asked for")
        request_options = {name: options[name] for name in ("headers", "params") if options.get(name) is not None}
        try:
            said, body = session.service.ask_for_bytes("fetch", {"url": url, **request_options})
        except RequestFailed as error:
            raise requests.ConnectionError(f"{url}: {error}") from error
        return public_http.answer_of(int(said["status"]), str(said["url"]), said["headers"], body)

    public_http.send_through(send)
    session.service.run()


def _seen(outcome: CommandOutcome, desktop_view: DesktopView) -> Answer:
    marks = desktop_view.marks
    value = {
        "ok": outcome.ok,
        "output": outcome.output,
        "error": outcome.error,
        "text": desktop_view.observation.text,
        "screen": list(desktop_view.screen),
        "marks": None if marks is None else [[number, *place] for number, place in marks.items()],
        "pictured": bool(desktop_view.observation.images),
    }
    return value, list(desktop_view.observation.images)
