"""The code in a cell that reads one page, called by `page_reader`. The template of the worker's cells imports it once."""

from __future__ import annotations

import logging
import socket

from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.cells.service import Answer, CellService
from rollout_tasks.environments.web.page_text import read_page, robots_verdict

read_page(
    b"<html><body><p>A short page.</p></body></html>", "text/html", "", ""
)  # what is loaded at first use, once for all cells


class _PageService:
    """The methods that a worker may call."""

    def __init__(self, channel: MessageChannel) -> None:
        self.service = CellService(channel, {"page": self.page, "robots": self.robots})

    def page(self, media_type: str, charset: str, url: str) -> Answer:
        title, text = read_page(self._body(), media_type, charset, url)
        return {"title": title, "text": text}, None

    def robots(self, agent: str, url: str) -> Answer:
        allowed, delay = robots_verdict(self._body(), agent, url)
        return {"allowed": allowed, "delay": delay}, None

    def _body(self) -> bytes:
        return self.service.ask_for_bytes("body", {})[1]


def serve(connection: socket.socket) -> None:
    """Serves a worker until it disconnects."""
    logging.disable()  # pages would fill the log of the template
    _PageService(MessageChannel(connection)).service.run()
