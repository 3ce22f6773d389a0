"""A model endpoint that is wrong in as many ways as it has paths: ``/401/models`` answers 401, and so on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    closing: threading.Event

    def do_GET(self) -> None:
        kind = self.path.split("/")[1]
        match kind:
            case "hang":
                self.closing.wait(60)
                self.close_connection = True
            case "html":
                self._send(200, b"<html>It works!</html>")
            case "broken":
                self._send(200, b'{"data": [')
            case "served":
                self._send(200, json.dumps({"data": [{"id": "m1"}, {"id": "m2"}]}).encode())
            case "keyed-chat":
                self._send(404, b"")
            case _:
                self._send(int(kind), b'{"error": {"message": "no"}}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send(401 if self.path.startswith("/keyed-chat") else 404, b"{}")

    def log_message(self, *_: object) -> None:
        return

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def odd_endpoint() -> Iterator[str]:
    """Serves it; gives its address without a path."""
    closing = threading.Event()
    handler = type("Handler", (_Handler,), {"closing": closing})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
