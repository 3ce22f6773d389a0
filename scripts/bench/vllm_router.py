"""The vllm-router as a `Policy`: it picks for real, while the replicas and their time are simulated.

Each pick is a request through the router, which the replica that got it holds open until the simulated answer is there: so the
router sees as many requests in flight as there are. A session's prompt grows by a piece with each of its calls.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue

import httpx

POLICIES = ("cache_aware", "consistent_hash", "sticky_least_loaded", "power_of_two", "round_robin")
_START_SECONDS = 60.0
_PICK_SECONDS = 30.0
_PIECE = "It opens the menu, looks at what is there, and goes on with the next entry of the list. " * 4


class _Replica(ThreadingHTTPServer):
    """Says which session's request it got, and holds it until it is released."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, number: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.number = number
        self.got: SimpleQueue[tuple[int, threading.Event]] = SimpleQueue()
        """Shared by all replicas of a router."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Replica
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "policy", "object": "model"}], "status": "healthy"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/chat/completions":  # as the router asks for a prompt's tokens, which few servers tell
            self._answer({"error": {"message": "not found"}}, 404)
            return
        released = threading.Event()
        self.server.got.put((self.server.number, released))
        released.wait()
        message = {"role": "assistant", "content": "on"}
        self._answer({"choices": [{"index": 0, "finish_reason": "stop", "message": message}], "model": "policy"})

    def log_message(self, *_: object) -> None:
        """Prints nothing."""

    def _answer(self, document: object, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class VllmRouter:
    """One router and its replicas, of which nobody is asked but by `pick`."""

    def __init__(self, client: httpx.Client, url: str, got: SimpleQueue[tuple[int, threading.Event]]) -> None:
        self._client = client
        self._url = url
        self._got = got
        self._turns: Counter[int] = Counter()
        self._open: dict[int, tuple[threading.Event, threading.Thread]] = {}

    def pick(self, session: int) -> int:
        """Sends a request through the router; returns the number of the replica that got it."""
        self._turns[session] += 1
        asking = threading.Thread(target=self._ask, args=(session, self._turns[session]), daemon=True)
        asking.start()
        number, released = self._got.get(timeout=_PICK_SECONDS)  # one pick at a time: it is this one's
        self._open[session] = released, asking
        return number

    def release(self, session: int) -> None:
        """Lets the replica answer, and waits until the router has passed that on."""
        released, asking = self._open.pop(session)
        released.set()
        asking.join(_PICK_SECONDS)

    def _ask(self, session: int, turn: int) -> None:
        content = f"Session {session}. " + "".join(f"{step}. {_PIECE}" for step in range(turn))
        body = {"model": "policy", "messages": [{"role": "user", "content": content}]}
        headers = {"X-Session-ID": f"session-{session}"}
        self._client.post(f"{self._url}/v1/chat/completions", json=body, headers=headers).raise_for_status()


@contextmanager
def running(program: Path, replicas: int, policy: str) -> Iterator[VllmRouter]:
    """A router with a policy of its own in front of that many replicas.

    Raises:
        TimeoutError: It does not answer.
    """
    with ExitStack() as stack:
        servers = [stack.enter_context(_Replica(number)) for number in range(replicas)]
        for server in servers:
            stack.callback(server.shutdown)
            server.got = servers[0].got
        with socket.socket() as probe, socket.socket() as other:
            probe.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            port, metrics = probe.getsockname()[1], other.getsockname()[1]
        command = [str(program), "--worker-urls", *(server.url for server in servers), "--policy", policy]
        command += [
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--prometheus-port",
            str(metrics),
            "--log-level",
            "error",
        ]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        stack.callback(process.terminate)
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{program} does not answer with the policy {policy}")
            time.sleep(0.2)
        client = stack.enter_context(httpx.Client(timeout=600, limits=httpx.Limits(max_connections=None)))
        yield VllmRouter(client, url, servers[0].got)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/models", timeout=5).is_success
    except httpx.HTTPError:
        return False
