"""What a worker takes from a cell, and asks for in its name: real servers, of which the task names one."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
import requests
from PIL import Image

from rollout_tasks.cells.template_process import TemplateProcess
from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.base import VMAccess
from rollout_tasks.environments.osworld.attempt_files import WorkerFiles
from rollout_tasks.environments.osworld.cell_session import CellSession, _checked
from rollout_tasks.settings import settings


class Web(BaseHTTPRequestHandler):
    """Sends to the other name of this machine where it is asked to."""

    asked: list[dict[str, str]] = []  # noqa: RUF012 (one for all)

    def do_GET(self) -> None:
        self.asked.append({name.lower(): value for name, value in self.headers.items()})
        port = self.connection.getsockname()[1]
        place = self.path.partition("to=")[2]
        self.send_response(302 if place else 200)
        self.send_header("Location", f"http://{place}:{port}/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    Web.asked.clear()
    monkeypatch.setenv("ROLLOUT_DOWNLOAD_HOSTS", "127.0.0.1,localhost")
    settings.cache_clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running.server_address[1]
        running.shutdown()
        thread.join()


def fetched(port: int, path: str, **arguments: Any) -> Any:
    """What a cell gets of a path of 127.0.0.1, which its task names, as it names /named?to=localhost."""
    task = {
        "config": [],
        "evaluator": {"result": {"type": "vm_file", "url": f"http://127.0.0.1:{port}/named?to=localhost"}},
    }
    session = CellSession(
        cast(TemplateProcess, None),
        DesktopConfig(),
        cast(VMAccess, None),
        task,
        WorkerFiles(Path("nowhere")),
        proxy=False,
        keep_log=False,
    )
    return session._fetch(f"http://127.0.0.1:{port}{path}", **arguments)[0]


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "host", "HOST", "Connection", "Transfer-Encoding", "Content-Length", "Proxy-Authorization"),
        *(
            "Proxy-Connection",
            "Cookie",
            "Authorization",
            "X-Forwarded-Host",
            "Host ",
            " Host",
            "Upgrade",
            "TE",
            "",
            "\u212aost",
        ),
    ],
)
def test_a_cell_sends_no_header_that_says_more_than_what_it_takes(name: str, port: int) -> None:
    with pytest.raises(ValueError, match="no such header can be sent"):
        fetched(port, "/", headers={name: "other.example"})
    assert Web.asked == []


@pytest.mark.parametrize("headers", ["Host: x", ["Host"], {"Accept": 1}, {"Accept": None}, {"Accept": ["a"]}])
def test_headers_are_texts(headers: Any, port: int) -> None:
    with pytest.raises(ValueError, match="no such header can be sent"):
        fetched(port, "/", headers=headers)
    assert Web.asked == []


@pytest.mark.parametrize("headers", [None, {}, {"User-Agent": "a browser", "accept-language": "de"}])
def test_a_cell_may_say_what_it_takes(headers: dict[str, str] | None, port: int) -> None:
    assert fetched(port, "/", headers=headers)["status"] == 200
    assert Web.asked[0]["host"] == f"127.0.0.1:{port}"
    assert {name.lower() for name in headers or {}} <= Web.asked[0].keys()


def test_a_named_host_sends_a_cell_to_no_other(port: int) -> None:
    for path, more in (("/?to=localhost", {}), ("/named", {"params": {"to": "localhost"}}), ("//?to=localhost", {})):
        with pytest.raises(requests.ConnectionError, match="it leads to localhost, which it may not"):
            fetched(port, path, **more)
    assert {one["host"] for one in Web.asked} == {f"127.0.0.1:{port}"}


def test_a_named_host_may_send_a_cell_to_a_named_one(port: int) -> None:
    assert fetched(port, "/?to=127.0.0.1")["status"] == 200


def test_an_address_that_the_task_names_leads_where_it_leads(port: int) -> None:
    """Files of a named host are often stored at another one's."""
    assert fetched(port, "/named?to=localhost")["url"] == f"http://localhost:{port}/"


def look(screen: tuple[int, int], picture: tuple[int, int] | None) -> Any:
    """What the worker takes from a cell whose screen and picture have these sizes."""
    file = io.BytesIO()
    if picture is not None:
        Image.new("RGB", picture).save(file, "PNG")
    said = {"ok": True, "output": "", "error": "", "text": "", "screen": [*screen], "marks": None}
    return _checked({**said, "pictured": picture is not None}, file.getvalue())[1]


@pytest.mark.parametrize("size", [(1920, 1080), (800, 600), (2560, 1440)])
@pytest.mark.parametrize("pictured", [True, False])
def test_an_agent_may_change_the_screens_size(size: tuple[int, int], pictured: bool) -> None:
    seen = look(size, size if pictured else None)
    assert seen.screen == size
    assert len(seen.observation.images) == pictured


@pytest.mark.parametrize(
    ("screen", "picture"),
    [((1920, 1080), (800, 600)), ((0, 1080), None), ((1920, -1), None), ((10**6, 10**6), None)],
)
def test_a_screen_is_as_large_as_its_picture(screen: tuple[int, int], picture: tuple[int, int] | None) -> None:
    with pytest.raises(ValueError, match=r"the cell's answer cannot be used: .*pixels"):
        look(screen, picture)
