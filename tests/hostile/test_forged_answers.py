"""A cell that is no longer ours: whatever it answers or asks for, the worker takes nothing but what it should be."""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from PIL import Image

from rollout_tasks.cells.filesystem import CellsUnavailable, cell_filesystem
from rollout_tasks.cells.output_log import LARGEST_LOG
from rollout_tasks.cells.template_process import TemplateProcess
from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.osworld.attempt_files import WorkerFiles
from rollout_tasks.environments.osworld.cell_session import CellSession
from rollout_tasks.environments.osworld.vm_client import VMUnreachable
from rollout_tasks.errors import EpisodeInterrupted, RolloutFailure
from rollout_tasks.settings import settings
from tests.cells_here import no_cells_here
from tests.integration.cells.conftest import TESTS
from vm_pool.states import Endpoint

SCREEN = (64, 48)
GOOD = {
    "ok": True,
    "output": "",
    "error": "",
    "text": "what is seen",
    "screen": [*SCREEN],
    "marks": [[1, 5, 6]],
    "pictured": True,
}


def png(width: int = SCREEN[0], height: int = SCREEN[1]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "PNG")
    return file.getvalue()


def headed(width: int, height: int) -> bytes:
    """A PNG of which there is nothing but the beginning."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))


@dataclass(frozen=True)
class VM:
    """A leased one, where nobody answers."""

    vm_id: str = "vm"
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("127.0.0.1", {"control": 9}))

    def check(self) -> None:
        pass


@pytest.fixture(scope="module")
def forging() -> Iterator[TemplateProcess]:
    try:
        cell_filesystem()
    except CellsUnavailable as reason:
        no_cells_here(str(reason))
    template = TemplateProcess("tests.integration.cells.forging", [TESTS])
    yield template
    template.stop()


Open = Callable[..., CellSession]


@pytest.fixture
def opened(forging: TemplateProcess, tmp_path: Path) -> Iterator[Open]:
    """A session whose cell answers as told: ``opened(begin=CODE, score=CODE, ...)``."""
    with ExitStack() as stack:

        def open_one(urls: tuple[str, ...] = (), **forged: str) -> CellSession:
            files = [{"url": url, "path": "/home/user/file"} for url in urls]
            task = {
                "id": "task",
                "config": [{"type": "download", "parameters": {"files": files}}] if urls else [],
                "evaluator": {"func": "infeasible"},
                "forged": {"begin": f"value, content = {GOOD!r}, [{png()!r}]", **forged},
            }
            config = DesktopConfig(screen_width=SCREEN[0], screen_height=SCREEN[1])
            session = CellSession(
                forging, config, VM(), task, WorkerFiles(tmp_path / "attempt"), proxy=False, keep_log=True
            )
            stack.callback(session.close)
            return session

        yield open_one


def test_what_is_good_is_taken(opened: Open) -> None:
    session = opened(
        act=f"value, content = {GOOD | {'ok': False, 'output': 'o', 'error': 'e'}!r}, [{png()!r}]", score="value = 0.5"
    )

    first = session.begin()
    outcome, seen = session.act("WAIT", 0.1)

    assert first.observation.text == "what is seen"
    assert first.observation.images == (png(),)
    assert (first.screen, first.marks) == (SCREEN, {1: (5, 6)})
    assert (outcome.ok, outcome.output, outcome.error) == (False, "o", "e")
    assert seen.observation.images == (png(),)
    assert session.score() == 0.5


BAD_SIGHTS = {
    "nothing": "value = None",
    "a list": "value = []",
    "a text": "value = 'well done'",
    "too little": "value = {'ok': True}",
    "a number for a flag": f"value, content = {GOOD | {'ok': 1}!r}, [{png()!r}]",
    "a number for text": f"value, content = {GOOD | {'text': 5}!r}, [{png()!r}]",
    "too much text": f"value = {GOOD!r}; value['text'] = 'x' * 9_000_000; content = [{png()!r}]",
    "too much output": f"value = {GOOD!r}; value['output'] = 'x' * 9_000_000; content = [{png()!r}]",
    "too long an answer": f"value = {GOOD!r}; value['text'] = 'x' * 20_000_000; content = [{png()!r}]",
    "no size": f"value, content = {GOOD | {'screen': None}!r}, [{png()!r}]",
    "half a size": f"value, content = {GOOD | {'screen': [64]}!r}, [{png()!r}]",
    "another size": f"value, content = {GOOD | {'screen': [65, 48]}!r}, [{png()!r}]",
    "a size in text": f"value, content = {GOOD | {'screen': ['64', '48']}!r}, [{png()!r}]",
    "more than a picture": f"value, content = {GOOD!r}, [{png()!r} + bytes(2 << 20)]",
    "another picture's size": f"value, content = {GOOD!r}, [{png(65, 48)!r}]",
    "no picture": f"value, content = {GOOD!r}, []",
    "an empty picture": f"value, content = {GOOD!r}, [b'']",
    "text for a picture": f"value, content = {GOOD!r}, [b'%!PS-Adobe-3.0 EPSF-3.0']",
    "a JPEG": f"value, content = {GOOD!r}, [b'\\xff\\xd8\\xff\\xe0' * 100]",
    "a huge picture": f"value, content = {GOOD!r}, [{headed(60_000, 60_000)!r}]",
    "a picture of nothing": f"value, content = {GOOD!r}, [{headed(0, 48)!r}]",
    "too many bytes": f"value, content = {GOOD!r}, (bytes(1 << 20) for _ in range(70))",
    "marks in text": f"value, content = {GOOD | {'marks': 'all'}!r}, [{png()!r}]",
    "a number for marks": f"value, content = {GOOD | {'marks': 5}!r}, [{png()!r}]",
    "half a mark": f"value, content = {GOOD | {'marks': [[1, 2]]}!r}, [{png()!r}]",
    "a mark nowhere": f"value, content = {GOOD | {'marks': [[1, -5, 10]]}!r}, [{png()!r}]",
    "a mark too far": f"value, content = {GOOD | {'marks': [[1, 5, 10**9]]}!r}, [{png()!r}]",
    "a mark in text": f"value, content = {GOOD | {'marks': [[1, '5', 10]]}!r}, [{png()!r}]",
    "a flag for a mark": f"value, content = {GOOD | {'marks': [[True, 5, 10]]}!r}, [{png()!r}]",
}


@pytest.mark.parametrize("what", BAD_SIGHTS)
def test_what_is_no_look_at_the_desktop_is_refused(what: str, opened: Open) -> None:
    worker = psutil.Process()
    before = worker.memory_info().rss

    with pytest.raises((ValueError, RuntimeError)):
        opened(begin=BAD_SIGHTS[what]).begin()

    assert worker.memory_info().rss - before < 300 << 20


@pytest.mark.parametrize(
    "value",
    ["None", "'1'", "True", "[1.0]", "{'score': 1}", "''", "float('inf')", "float('nan')", "10 ** 400", "1j"],
)
def test_what_is_no_number_is_no_score(value: str, opened: Open) -> None:
    session = opened(score=f"value = {value}")
    session.begin()

    with pytest.raises((ValueError, RuntimeError, TypeError, OverflowError)):
        session.score()


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("raise ValueError('no such cell')", ValueError, "no such cell"),
        ("raise SystemExit(0)", RuntimeError, "SystemExit: 0"),
        ("raise KeyboardInterrupt", RuntimeError, "KeyboardInterrupt"),
        ("raise type('EpisodeInterrupted', (Exception,), {})('CANCELLED')", RuntimeError, "EpisodeInterrupted: CANCEL"),
        ("raise type('RolloutFailure', (Exception,), {})('agent')", RuntimeError, "RolloutFailure: agent"),
        ("raise type('LeaseLost', (Exception,), {})('gone')", RuntimeError, "LeaseLost: gone"),
        ("raise type('__import__', (Exception,), {})('os')", RuntimeError, "__import__: os"),
        ("raise type('VMUnreachable', (BaseException,), {})('silent')", VMUnreachable, "silent"),
        ("raise ValueError('x' * 5_000_000)", ValueError, "xxx"),
    ],
)
def test_an_error_is_one_of_a_few(error: str, kind: type[BaseException], said: str, opened: Open) -> None:
    session = opened(score=error)
    session.begin()

    with pytest.raises(kind) as raised:
        session.score()

    assert said in str(raised.value)
    assert len(str(raised.value)) <= 11_000
    assert not isinstance(raised.value, EpisodeInterrupted | RolloutFailure)


class Files(BaseHTTPRequestHandler):
    """A file server on the worker's side."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(302 if self.path == "/elsewhere" else 200)
        self.send_header("Location", "http://169.254.169.254/latest")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"a file")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Where files are; the worker's user trusts it."""
    Files.asked.clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as running:
        address = f"127.0.0.1:{running.server_address[1]}"
        monkeypatch.setenv("ROLLOUT_DOWNLOAD_HOSTS", address)
        settings.cache_clear()
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://{address}"
        running.shutdown()


def test_files_that_the_task_names_are_given(opened: Open, server: str) -> None:
    session = opened(
        (f"{server}/named",),
        score=f"value = 1.0 if service.ask_for_bytes('file', {{'url': '{server}/named'}})[1] == b'a file' else 0.0",
    )
    session.begin()

    assert session.score() == 1.0
    assert Files.asked == ["/named"]


@pytest.mark.parametrize(
    "question",
    [
        "'file', {'url': SERVER + '/other'}",
        "'file', {'url': '/etc/passwd'}",
        "'file', {'url': 'file:///etc/passwd'}",
        "'file', {'url': ['a']}",
        "'file', {'url': {'a': 1}}",
        "'file', {}",
        "'file', {'url': SERVER + '/named', 'more': 1}",
        "'fetch', {'url': 'http://127.0.0.1:1/x'}",
        "'fetch', {'url': 'http://localhost/x'}",
        "'fetch', {'url': 'http://169.254.169.254/latest'}",
        "'fetch', {'url': 'http://metadata.google.internal/'}",
        "'fetch', {'url': 'http://example.org/'}",
        "'fetch', {'url': 'file:///etc/passwd'}",
        "'fetch', {'url': 'gopher://ipapi.co/'}",
        "'fetch', {'url': 'http://[::1]/'}",
        "'fetch', {'url': 'http://ipapi.co@127.0.0.1/'}",
        "'fetch', {'url': 'http://127.0.0.1#@ipapi.co/'}",
        "'fetch', {'url': 5}",
        "'fetch', {'url': None}",
        "'fetch', {'url': SERVER + '/elsewhere'}",
        "'fetch', {'url': SERVER + '/x', 'headers': 'Host: x'}",
        "'fetch', {'url': SERVER + '/x', 'headers': {'A': 'b\\r\\nHost: x'}}",
        "'fetch', {'url': SERVER + '/x', 'headers': {'Host': 'other.example'}}",
        "'fetch', {'url': SERVER + '/x', 'headers': {'cookie': 'a=b'}}",
        "'fetch', {'url': SERVER + '/x', 'method': 'POST'}",
        "'fetch', {'url': SERVER + '/x', 'timeout': 10**9}",
        "'settings', {'path': '/root/.ssh/id_rsa'}",
        "'run', {'command': 'id'}",
        "'__class__', {}",
        "'log', {}",
    ],
)
def test_nothing_else_is_done_for_a_cell(question: str, opened: Open, server: str) -> None:
    code = (
        f"SERVER = {server!r}\ntry:\n    service.ask_for_bytes({question})\n    value = 'it was done'\n"
        "except Exception as error:\n    value = [type(error).__name__, str(error)[:200]]"
    )
    session = opened((f"{server}/named",), act=code, score="value = 1.0")
    session.begin()

    with pytest.raises(ValueError, match="cannot be used"):
        session.act(None, 0)

    assert session.score() == 1.0
    assert {path for path in Files.asked if path != "/named"} <= {"/elsewhere"}


def test_the_log_ends_where_it_must(opened: Open, tmp_path: Path) -> None:
    session = opened(score="for _ in range(30): service.tell('log', b'x' * (1 << 20))\nvalue = 1")
    session.begin()
    session.score()

    assert (tmp_path / "attempt" / "desktop-env.log").stat().st_size == LARGEST_LOG


def test_so_does_the_recording(opened: Open, tmp_path: Path) -> None:
    session = opened(take_recording="content = (bytes(1 << 20) for _ in range(300))", score="value = 1")
    files = WorkerFiles(tmp_path / "attempt")
    session.begin()

    with pytest.raises((RuntimeError, ValueError)), files.recording() as take:
        session.take_recording(take)

    assert list((tmp_path / "attempt").iterdir()) == []
    assert session.score() == 1.0
