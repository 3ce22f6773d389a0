"""A guest whose server is no longer ours: whatever it answers, the worker neither goes elsewhere nor takes more than the limits."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import requests
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

from rollout_tasks.environments.osworld import vm_client
from rollout_tasks.environments.osworld.browser import stay_with_the_guest
from rollout_tasks.environments.osworld.guest_http import UnusableAnswer
from rollout_tasks.environments.osworld.vm_client import REQUESTS, VMClient, VMUnreachable

MEBIBYTE = 1 << 20


class Guest:
    """Answers each connection with whatever bytes it was told, `/platform` as it should be."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.answer: Callable[[socket.socket], None] = lambda _connection: None
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _address = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = connection.recv(MEBIBYTE).decode()
            self.asked.append(request.split()[1])
            if request.split()[1] == "/platform":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nLinux")
            else:
                self.answer(connection)

    def says(self, head: str, body: bytes = b"", times: int = 1) -> None:
        """Sends a head, and a body so many times."""

        def answer(connection: socket.socket) -> None:
            connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
            for _ in range(times):
                connection.sendall(body)

        self.answer = answer

    def end(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def guest() -> Iterator[Guest]:
    guest = Guest()
    yield guest
    guest.end()


@pytest.fixture
def elsewhere() -> Iterator[Guest]:
    """What only the worker can reach."""
    guest = Guest()
    guest.says("HTTP/1.1 200 OK\nContent-Length: 6\nConnection: close", b"secret")
    yield guest
    guest.end()


@pytest.fixture
def line(guest: Guest, elsewhere: Guest, monkeypatch: pytest.MonkeyPatch) -> Iterator[VMClient]:
    monkeypatch.setattr(vm_client, "DEFAULT_SECONDS", 1.0)
    monkeypatch.setattr(vm_client, "ELSEWHERE_SECONDS", (1.0, 1.0))
    monkeypatch.setattr(vm_client, "PROBE_SECONDS", 1.0)
    line = VMClient("127.0.0.1", guest.port)
    line.open()
    yield line
    line.close()


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(line: VMClient, guest: Guest, elsewhere: Guest, status: int) -> None:
    guest.says(f"HTTP/1.1 {status} Elsewhere\nLocation: http://127.0.0.1:{elsewhere.port}/secret\nContent-Length: 0")
    with pytest.raises(
        VMUnreachable, match=rf"is not the VM's server: /execute was answered with a redirect .*{status}"
    ):
        REQUESTS.post(f"{line.origin}/execute", json={})
    with pytest.raises(VMUnreachable):
        REQUESTS.get(f"{line.origin}/screenshot")
    assert elsewhere.asked == []
    assert guest.asked == ["/execute"]


@pytest.mark.parametrize("status", [301, 307])
def test_nor_is_one_of_another_server_in_the_guest(guest: Guest, elsewhere: Guest, status: int) -> None:
    line = VMClient("127.0.0.1", 9, [9, guest.port])
    line.open()
    try:
        guest.says(
            f"HTTP/1.1 {status} X\nLocation: http://127.0.0.1:{elsewhere.port}/secret\nContent-Length: 0\nSet-Cookie: a=b"
        )
        url = f"http://127.0.0.1:{guest.port}/requests/status.xml"
        assert REQUESTS.get(url, auth=("", "password")).status_code == status
        guest.says("HTTP/1.1 200 OK\nContent-Length: 4\nConnection: close", b"\xff\xfeok")
        assert REQUESTS.get(url).text == "\ufffd\ufffdok"
        assert elsewhere.asked == []
    finally:
        line.close()


def test_a_redirect_with_a_body_without_end_costs_nothing(line: VMClient, guest: Guest) -> None:
    guest.says("HTTP/1.1 302 Elsewhere\nLocation: /x\nConnection: close", bytes(MEBIBYTE), times=1000)
    with growing_by(mebibytes=20), pytest.raises(VMUnreachable, match="is not the VM's server"):
        REQUESTS.get(f"{line.origin}/accessibility")


BODIES = {
    "without end": ("HTTP/1.1 200 OK\nConnection: close", bytes(MEBIBYTE), 100_000),
    "of a length that is said": (f"HTTP/1.1 200 OK\nContent-Length: {1 << 40}", bytes(MEBIBYTE), 100_000),
    "in small chunks": ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"1000\r\n" + bytes(4096) + b"\r\n", 1_000_000),
    "in one chunk": ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nffffffffff", bytes(MEBIBYTE), 100_000),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_has_a_limit(line: VMClient, guest: Guest, body: tuple[str, bytes, int]) -> None:
    guest.says(*body)
    with growing_by(mebibytes=200), pytest.raises(UnusableAnswer, match="more than 64 MiB"):
        REQUESTS.get(f"{line.origin}/accessibility")
    line.check()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "GZIP", "no-such"])
def test_nothing_is_unpacked(line: VMClient, guest: Guest, encoding: str) -> None:
    bomb = gzip.compress(bytes(MEBIBYTE))
    guest.says(f"HTTP/1.1 200 OK\nContent-Encoding: {encoding}\nContent-Length: {len(bomb)}", bomb)
    with pytest.raises(UnusableAnswer, match="which was not asked for"):
        REQUESTS.get(f"{line.origin}/accessibility")


HEADS = {
    "a line without end": b"HTTP/1.1 200 " + b"x" * MEBIBYTE,
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000,
    "a header without end": b"HTTP/1.1 200 OK\r\na: " + b"b" * MEBIBYTE,
    "a chunk's size without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * MEBIBYTE,
    "a chunk's size that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\nConnection: close\r\n\r\nabc",
    "no HTTP": b"\x00\xff" * 100,
    "a status that is none": b"HTTP/1.1 9999999999 OK\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_a_head_that_is_none_is_an_error_of_requests(line: VMClient, guest: Guest, head: bytes) -> None:
    guest.answer = lambda connection: connection.sendall(head)
    try:
        with growing_by(mebibytes=100):
            REQUESTS.get(f"{line.origin}/accessibility")
    except requests.RequestException:
        pass
    line.check()


def test_a_body_that_drips_has_a_deadline(line: VMClient, guest: Guest) -> None:
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not over.wait(0.05):
            connection.sendall(b"x")

    guest.answer = drip
    with pytest.raises(requests.ReadTimeout):
        REQUESTS.get(f"{line.origin}/other")
    over.set()
    line.check()


@pytest.mark.parametrize("charset", ["zlib_codec", "utf-16", "no-such", "idna", ""])
def test_text_is_utf_8(line: VMClient, guest: Guest, charset: str) -> None:
    guest.says(f"HTTP/1.1 200 OK\nContent-Type: text/plain; charset={charset}\nContent-Length: 4", b"\xc3\xa9\xff\xfe")
    assert REQUESTS.get(f"{line.origin}/terminal").text == "é\ufffd\ufffd"


ELSEWHERE = (
    "ws://127.0.0.1:{port}/devtools/browser/x",
    "http://127.0.0.1:{port}/",
    "//127.0.0.1:{port}/x",
    "",
    None,
    5,
)


@pytest.mark.parametrize("address", ELSEWHERE)
@pytest.mark.parametrize("status", [200, 302])
def test_a_browser_cannot_send_the_worker_elsewhere(
    guest: Guest, elsewhere: Guest, address: object, status: int
) -> None:
    named = address.format(port=elsewhere.port) if isinstance(address, str) else address
    body = json.dumps({"webSocketDebuggerUrl": named}).encode()
    head = f"HTTP/1.1 {status} X\nLocation: http://127.0.0.1:{elsewhere.port}/\nContent-Length: {len(body)}"
    guest.says(f"{head}\nConnection: close", body)
    line = VMClient("127.0.0.1", 9, [9, guest.port])
    line.open()
    try:
        stay_with_the_guest()
        with sync_playwright() as playwright, pytest.raises((ValueError, PlaywrightError)):
            playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{guest.port}", timeout=5000)
    finally:
        line.close()
    assert elsewhere.asked == []
    assert guest.asked[0] == "/json/version"


class growing_by:  # noqa: N801 (used as a function)
    """This process may take so much more memory, and not more."""

    def __init__(self, mebibytes: int) -> None:
        self._most = mebibytes << 10

    def __enter__(self) -> None:
        self._before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def __exit__(self, *_error: object) -> None:
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._before < self._most
