"""Loaded by vLLM, in its own Python: what changes a server needs the secret of the program that started it.

vLLM's key guards what is below /v1 only. Without this, whoever reaches a server could pause it, end it, give it other weights,
or call any method of its engine. Knows nothing of this project's packages: they are not installed there.
"""

import hmac
import os
from typing import Any

OPEN = ("/health", "/ping", "/version", "/load", "/metrics")


class ControlGuard:
    """ASGI middleware: below /v1, and of OPEN, vLLM decides; all else needs the secret."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.wanted = f"Bearer {os.environ['ROLLOUTS_CONTROL_SECRET']}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers a request that may not be made; passes on all others."""
        if scope["type"] == "lifespan" or self._lets_pass(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            body = b'{"error": "only the program that started this server may ask that"}'
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def _lets_pass(self, scope: Any) -> bool:
        path = scope["path"]
        if path.startswith("/v1/") or path in OPEN:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self.wanted)
