"""A cell that answers its worker with whatever its task says, as one that an evaluator has taken over would."""

from __future__ import annotations

import socket
from typing import Any

from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.cells.service import Answer, CellService


def serve(connection: socket.socket) -> None:
    """Serves a worker."""
    channel = MessageChannel(connection)
    forged: dict[str, str] = {}
    service: CellService

    def answer(method: str) -> Answer:
        names: dict[str, Any] = {"channel": channel, "service": service, "value": None, "content": None}
        exec(forged.get(method, ""), names)  # noqa: S102
        return names["value"], names["content"]

    def begin(task: dict[str, Any], **_others: Any) -> Answer:
        forged.update(task["forged"])
        return answer("begin")

    methods = {name: lambda name=name, **_: answer(name) for name in ("act", "take_recording", "score", "close")}
    service = CellService(channel, {"begin": begin, **methods})
    service.run()
