"""A stand-in for a service that lends desktops as emulators, with its routes and codes; a desktop is a port with screenshots."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image

TOKEN = "token-of-the-test"

Answer = tuple[int, Any]
"""The status, and JSON or text."""


@dataclass
class EmulatorService:
    """What it has lent, and what it is told to answer instead."""

    port: int = 0
    quota: int = 3
    lent: dict[str, int] = field(default_factory=dict)
    """The port of each emulator."""
    requests: list[str] = field(default_factory=list)
    instead: Callable[[str], Answer | None] = lambda _path: None
    started: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 48)).save(file, "PNG")
    return file.getvalue()


class Desktop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(png())

    def log_message(self, *_: object) -> None:
        """Not to the test's output."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextmanager
def emulator_service() -> Iterator[EmulatorService]:
    """Runs one while the block lasts."""
    service = EmulatorService()
    with serving(Desktop) as desktop:

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: dict[str, Any]) -> None:
                service.requests.append(f"{self.command} {self.path}")
                status, said = service.instead(self.path) or answer(
                    service, desktop, self.path, body, self.headers["Authorization"]
                )
                content = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/ping")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Not to the test's output."""

        with serving(Handler) as service.port:
            yield service


def answer(service: EmulatorService, desktop: int, path: str, body: dict[str, Any], token: str | None) -> Answer:
    """Returns what the service says by itself."""
    if token != f"Bearer {TOKEN}":
        return (401 if token is None else 403), {"message": "Unknown or unauthorized token", "code": 403}
    where, _, name = path.lstrip("/").partition("/")
    if where == "start_emulator":
        if len(service.lent) >= service.quota:
            return 429, {"message": "Token limit exceeded", "code": 429}
        service.started += 1
        service.lent[f"emu-{service.started}"] = desktop
        data = {"emulator_id": f"emu-{service.started}", "server_port": desktop, "vnc_port": 5900, "token": TOKEN}
        return 200, {"message": "Emulator started successfully", "code": 0, "data": data}
    if where == "emulators_by_token":
        return 200, list(service.lent)
    name = name or str(body.get("emulator_id"))
    if name not in service.lent:
        return 404, {"message": "Emulator not found", "code": 404, "status": "not_found"}
    if where == "stop_emulator":
        del service.lent[name]
        return 200, {"message": "Emulator stopped successfully", "code": 0}
    return 200, {"emulator_id": name, "status": "running", "server_port": desktop}
