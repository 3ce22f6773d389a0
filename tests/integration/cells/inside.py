"""What the tests' cells run: whatever code they are sent, as code that is not ours would."""

from __future__ import annotations

import os
import socket
from typing import Any

from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.cells.service import Answer, CellService


def serve(connection: socket.socket) -> None:
    """Serves a test."""
    channel = MessageChannel(connection)
    service: CellService

    def run(code: str) -> Answer:
        names: dict[str, Any] = {"channel": channel, "service": service, "result": None, "content": None, "os": os}
        exec(code, names)  # noqa: S102
        return names["result"], names["content"]

    service = CellService(channel, {"run": run})
    service.run()
