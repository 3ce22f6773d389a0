"""Requests of desktop-env against a real server that refuses, stalls and dies."""

from __future__ import annotations

import ast
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import requests

import desktop_image
from rollout_tasks.environments.osworld import public_http, vm_client
from rollout_tasks.environments.osworld.vm_client import REQUESTS, RequestRefused, VMClient, VMUnreachable


class Guest(BaseHTTPRequestHandler):
    """Answers, refuses or stalls, by path."""

    stalled = threading.Event()
    served: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.served.append(self.path)
        if self.path in ("/stall", "/screenshot") or (self.path == "/platform" and self.stalled.is_set()):
            time.sleep(1.0)
        self.send_response(500 if self.path == "/refuse" else 200)
        self.send_header("Content-Length", "2")
        with suppress(ConnectionError):  # who asked may have given up
            self.end_headers()
            self.wfile.write(b"ok")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setattr(vm_client, "PROBE_SECONDS", 20.0)  # for a living one, however busy this machine is
    monkeypatch.setattr(vm_client, "DEFAULT_SECONDS", 0.3)
    monkeypatch.setattr(vm_client, "REFUSED_AGAIN_SECONDS", 0.05)
    Guest.stalled.clear()
    Guest.served.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Guest)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, the guest answers no probe in time."""
    monkeypatch.setattr(vm_client, "PROBE_SECONDS", 0.3)
    Guest.stalled.set()


@pytest.fixture
def line(guest: ThreadingHTTPServer) -> Iterator[VMClient]:
    opened = VMClient("127.0.0.1", guest.server_port)
    opened.open()
    yield opened
    opened.close()


def test_answers_come_through_and_refusals_are_noted(line: VMClient) -> None:
    assert REQUESTS.get(f"{line.origin}/fine").text == "ok"
    assert REQUESTS.post(f"{line.origin}/refuse", data={"a": "b"}).status_code == 500
    assert [(response.path, response.status, response.body) for response in line.error_responses] == [
        ("/refuse", 500, "ok")
    ]


def test_a_refusal_of_what_must_be_accepted_is_raised(line: VMClient) -> None:
    line.must_accept = frozenset({"/refuse"})
    with pytest.raises(RequestRefused, match="/refuse answered HTTP 500: ok"):
        REQUESTS.post(f"{line.origin}/refuse")
    assert [response.path for response in line.error_responses] == ["/refuse"]


def test_a_slow_picture_of_a_living_vm_is_waited_for(line: VMClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm_client, "SILENT_SECONDS", 0.1)
    assert REQUESTS.get(f"{line.origin}/screenshot", timeout=0.2).text == "ok"
    assert "/platform" in Guest.served


def test_a_vm_that_is_gone_is_noticed_while_a_picture_is_waited_for(
    line: VMClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm_client, "SILENT_SECONDS", 0.1)
    stall(monkeypatch)
    with pytest.raises(VMUnreachable, match=r"does not answer: /screenshot is not answered, and nothing else is"):
        REQUESTS.get(f"{line.origin}/screenshot", timeout=0.2)


def test_a_slow_answer_of_a_living_vm_is_only_that_requests_trouble(line: VMClient) -> None:
    with pytest.raises(requests.ReadTimeout):
        REQUESTS.get(f"{line.origin}/stall")
    assert REQUESTS.get(f"{line.origin}/fine").text == "ok"


def test_a_frozen_vm_is_lost_and_everything_after_it_refused(line: VMClient, monkeypatch: pytest.MonkeyPatch) -> None:
    stall(monkeypatch)
    with pytest.raises(VMUnreachable, match=r"the VM at http://127.0.0.1:\d+ does not answer: /stall was not answered"):
        REQUESTS.get(f"{line.origin}/stall")
    served = len(Guest.served)
    with pytest.raises(VMUnreachable):
        REQUESTS.get(f"{line.origin}/fine")
    assert len(Guest.served) == served


def test_a_frozen_vm_is_noticed_during_a_request_that_may_take_long(
    line: VMClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm_client, "SILENT_SECONDS", 0.1)
    monkeypatch.setitem(vm_client.ANSWER_SECONDS, "/stall", 100.0)
    assert REQUESTS.get(f"{line.origin}/stall").text == "ok"
    stall(monkeypatch)
    with pytest.raises(VMUnreachable, match="/stall is not answered"):
        REQUESTS.get(f"{line.origin}/stall")


def test_code_that_catches_every_exception_cannot_hide_a_lost_vm(
    line: VMClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall(monkeypatch)
    with pytest.raises(VMUnreachable):
        try:
            REQUESTS.get(f"{line.origin}/stall")
        except Exception as error:
            raise AssertionError("hidden") from error


def test_a_loop_that_catches_everything_ends_at_its_sleep(line: VMClient, monkeypatch: pytest.MonkeyPatch) -> None:
    stall(monkeypatch)
    rounds = 0
    with pytest.raises(VMUnreachable):
        while rounds < 10:
            rounds += 1
            try:
                REQUESTS.get(f"{line.origin}/stall")
            except BaseException:  # noqa: BLE001
                vm_client._TIME.sleep(5)
    assert rounds == 1


def test_a_closed_port_is_a_lost_vm() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        line = VMClient("127.0.0.1", probe.getsockname()[1])
    line.open()
    try:
        with pytest.raises(VMUnreachable, match="it accepts no connection"):
            REQUESTS.get(f"{line.origin}/fine")
    finally:
        line.close()


def test_a_longer_timeout_than_usual_is_cut(line: VMClient) -> None:
    began = time.monotonic()
    with pytest.raises(requests.ReadTimeout):
        REQUESTS.post(f"{line.origin}/stall", timeout=1810)
    assert time.monotonic() - began < 30


def test_of_other_addresses_only_the_internets_and_trusted_ones_are_asked(
    line: VMClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.close()
    with pytest.raises(requests.ConnectionError, match=r"127\.0\.0\.1"):
        REQUESTS.get(f"{line.origin}/fine")
    assert Guest.served == []

    monkeypatch.setattr(public_http, "settings", lambda: SimpleNamespace(trusted_hosts=frozenset({"127.0.0.1"})))
    answer = REQUESTS.post(f"{line.origin}/refuse", json={"a": 1})
    assert (answer.status_code, answer.text, answer.ok) == (500, "ok", False)
    assert b"".join(answer.iter_content(1)) == b"ok"
    assert line.error_responses == []


def test_desktop_env_talks_through_it() -> None:
    from rollout_tasks.environments.osworld.desktop_env_import import desktop_env

    desktop_env()
    vm_client.install()
    from desktop_env.controllers import python, setup
    from desktop_env.evaluators.getters import chrome, file, general, vlc

    for module in (python, setup, chrome, file, general, vlc):
        assert module.requests is REQUESTS
    assert setup.time is vm_client._TIME


class Cutting(BaseHTTPRequestHandler):
    """Takes a request and breaks the connection without a word."""

    def do_POST(self) -> None:
        Guest.served.append(self.path)
        self.connection.close()

    def do_GET(self) -> None:
        Guest.served.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


def test_a_request_that_may_have_arrived_is_not_sent_again(guest: ThreadingHTTPServer, line: VMClient) -> None:
    guest.RequestHandlerClass = Cutting  # type: ignore[assignment]

    with pytest.raises(requests.ConnectionError):
        REQUESTS.post(f"{line.origin}/execute", data="click")

    assert Guest.served == ["/execute", "/platform"]
    line.check()


def test_an_unanswered_request_is_not_sent_again(line: VMClient) -> None:
    with pytest.raises(requests.ReadTimeout):
        REQUESTS.post(f"{line.origin}/stall")

    assert Guest.served == ["/stall", "/platform"]


def test_a_refused_connection_is_tried_once_more_and_then_the_vm_is_lost(
    line: VMClient, guest: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(vm_client, "time", SimpleNamespace(sleep=pauses.append))  # other threads have the real one
    gone = VMClient("127.0.0.1", _unused_port())

    with pytest.raises(VMUnreachable, match=r"does not answer: it accepts no connection$"):
        gone.request("POST", f"{gone.origin}/execute")

    assert pauses == [vm_client.REFUSED_AGAIN_SECONDS]
    with pytest.raises(VMUnreachable, match="it accepts no connection"):
        gone.check()
    assert Guest.served == []


def test_a_server_that_starts_again_meanwhile_gets_the_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    port = _unused_port()
    servers: list[ThreadingHTTPServer] = []

    def start_again(_seconds: float) -> None:
        servers.append(ThreadingHTTPServer(("127.0.0.1", port), Guest))
        threading.Thread(target=servers[0].serve_forever, args=(0.05,)).start()

    monkeypatch.setattr(vm_client, "time", SimpleNamespace(sleep=start_again))
    Guest.served.clear()
    again = VMClient("127.0.0.1", port)
    try:
        assert again.request("POST", f"{again.origin}/execute").text == "ok"
    finally:
        again.close()
        for server in servers:
            server.shutdown()
            server.server_close()

    assert Guest.served == ["/execute"]
    assert again.lost == ""


def test_the_first_reason_for_a_loss_stays(line: VMClient) -> None:
    with pytest.raises(VMUnreachable, match="first"):
        line.lose("first")
    with pytest.raises(VMUnreachable, match="first"):
        line.lose("second")
    with pytest.raises(VMUnreachable, match="first"):
        REQUESTS.get(f"{line.origin}/fine")

    assert Guest.served == []


def test_after_closing_requests_go_their_own_way(guest: ThreadingHTTPServer) -> None:
    closed = VMClient("127.0.0.1", guest.server_port)
    closed.open()
    closed.close()
    closed.lost = "gone"

    with pytest.raises(requests.ConnectionError, match="no address on the internet"):
        REQUESTS.get(f"{closed.origin}/fine")


def test_refusals_of_other_paths_are_only_noted(line: VMClient) -> None:
    line.must_accept = frozenset({"/elsewhere"})

    assert REQUESTS.post(f"{line.origin}/refuse").status_code == 500
    assert [response.path for response in line.error_responses] == ["/refuse"]
    assert REQUESTS.get(f"{line.origin}/fine").status_code == 200
    assert len(line.error_responses) == 1


@pytest.mark.parametrize(
    ("given", "usual", "taken"),
    [(None, None, 0.3), (None, 5.0, 5.0), (2, 5.0, 2.0), (9.0, 5.0, 5.0), ((1.0, 3.0), 5.0, 3.0), (9, None, 0.3)],
)
def test_the_shorter_of_two_times_counts(
    monkeypatch: pytest.MonkeyPatch, given: object, usual: float | None, taken: float
) -> None:
    monkeypatch.setattr(vm_client, "DEFAULT_SECONDS", 0.3)

    assert vm_client._shorter(given, usual) == taken


def test_a_long_sleep_asks_whether_the_vm_is_there_and_a_short_one_does_not(
    line: VMClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm_client, "LONG_SLEEP_SECONDS", 0.02)

    vm_client._TIME.sleep(0.01)
    assert Guest.served == []
    vm_client._TIME.sleep(0.02)
    assert Guest.served == ["/platform"]


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


DEADLINES = {
    "/accessibility": {"accessibility.TREE_SECONDS": 1},
    "/end_recording": {
        "recording.FIRST_PICTURE_SECONDS": 1,
        "recording.STOP_SECONDS": 1,
        "recording.REMUX_SECONDS": 1,
    },
    "/execute": {"commands.COMMAND_SECONDS": 1},
    "/list_directory": {"files.LISTING_SECONDS": 1},
    "/run_python": {"python_code.CODE_SECONDS": 1},
    "/setup/activate_window": {"windows.OPENING_SECONDS": 1, "windows.ACTIVATION_SECONDS": 1},
    "/setup/change_wallpaper": {"opening.SETTINGS_SECONDS": 2},
    "/setup/close_window": {"windows.OPENING_SECONDS": 1, "windows.CLOSING_SECONDS": 1},
    "/setup/execute": {"commands.COMMAND_SECONDS": 1},
    "/setup/execute_with_verification": {"commands.COMMAND_SECONDS": 1, "commands.VERIFICATION_SECONDS": 1},
    "/setup/open_file": {"opening.WINDOW_SECONDS": 1},
    "/terminal": {"accessibility.TERMINAL_SECONDS": 1},
    "/wallpaper": {"opening.SETTINGS_SECONDS": 1},
}
"""The deadlines of the guest's own server that may pass one after another in a request, and how often each."""


def deadline(name: str) -> float:
    """A constant of the guest's server, read from its source: only guests have what it imports."""
    module, _, constant = name.partition(".")
    source = (Path(desktop_image.__file__).parent / "server" / f"{module}.py").read_text()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == constant:
            return float(ast.literal_eval(statement.value))
    raise LookupError(name)


@pytest.mark.parametrize("path", DEADLINES)
def test_an_answer_is_waited_for_as_long_as_the_guests_server_may_take(path: str) -> None:
    longest = sum(times * deadline(name) for name, times in DEADLINES[path].items())
    assert vm_client.ANSWER_SECONDS.get(path, vm_client.DEFAULT_SECONDS) > longest
