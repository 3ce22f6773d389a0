"""Who may call the control server, tried with raw requests on a real desktop: neither web pages nor programs in the guest."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence

import pytest

from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import Desktop

pytestmark = needs_local_desktops

HERE = (
    "localhost",
    "LOCALHOST",
    "localhost:5000",
    "127.0.0.1",
    "127.0.0.1:41234",
    "10.1.2.3:80",
    "[::1]",
    "[::1]:5000",
)
ELSEWHERE = (
    *("", "guest", "evil.example", "evil.example:5000", "localhost.evil.example", "evil.localhost", "localhost."),
    *(
        "127.0.0.1.evil.example",
        "127.0.0.1:5000:80",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::1].example",
    ),
    *("[evil.example]", "user@127.0.0.1", "127.0.0.1:evil", "127.0.0.1, evil.example", "::1"),
)
BY_A_PAGE = (
    "Origin: http://evil.example",
    "Origin: null",
    "Origin: http://127.0.0.1:5000",
    "origin:",
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: same-origin",
    "Sec-Fetch-Site: none",
)


def said(desktop: Desktop, head: Sequence[str], body: str = "") -> tuple[int, str]:
    """Status and body of the answer to a request that is sent as it stands."""
    with socket.create_connection((desktop.address, desktop.ports["control"]), 60) as connection:
        lines = [*head, f"Content-Length: {len(body)}", "Connection: close"]
        connection.sendall("\r\n".join([*lines, "", body]).encode())
        answer = connection.makefile("rb").read().decode()
    return int(answer.split(" ")[1]), answer.partition("\r\n\r\n")[2]


@pytest.mark.parametrize("host", HERE)
def test_it_is_reached_by_address(desktop: Desktop, host: str) -> None:
    assert said(desktop, ["GET /platform HTTP/1.1", f"Host: {host}"]) == (200, "Linux")


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_name_that_others_decide_about_is_refused(desktop: Desktop, host: str) -> None:
    status, body = said(desktop, ["GET /platform HTTP/1.1", f"Host: {host}"])

    assert status == 403, body
    assert json.loads(body)["message"].startswith("the control server is reached as localhost or by an IP address")


def test_a_request_without_a_host_or_with_two_is_refused(desktop: Desktop) -> None:
    assert said(desktop, ["GET /platform HTTP/1.0"])[0] == 403
    assert said(desktop, ["GET /platform HTTP/1.1", "Host: 127.0.0.1", "Host: evil.example"])[0] == 403


@pytest.mark.parametrize("header", BY_A_PAGE)
@pytest.mark.parametrize(
    ("request_line", "kind"),
    [
        ("POST /execute HTTP/1.1", "text/plain"),
        ("POST /execute HTTP/1.1", "application/json"),
        ("GET /screenshot HTTP/1.1", ""),
        ("OPTIONS /execute HTTP/1.1", ""),
        ("GET /nowhere HTTP/1.1", ""),
    ],
)
def test_what_a_page_sends_is_refused_and_not_done(desktop: Desktop, request_line: str, kind: str, header: str) -> None:
    command = json.dumps({"command": "touch /home/user/done", "shell": True}) if kind else ""
    head = [request_line, "Host: 127.0.0.1:5000", header, *([f"Content-Type: {kind}"] if kind else [])]

    status, body = said(desktop, head, command)

    assert status == 403, body
    assert "is not for web pages" in json.loads(body)["message"]
    assert desktop.shell("ls /home/user/done") == "ls: cannot access '/home/user/done': No such file or directory\n"


FROM_INSIDE = {
    "by name": "curl -s -m 5 http://localhost:5000/platform",
    "by address": "curl -s -m 5 http://127.0.0.1:5000/platform",
    "from another address": "curl -s -m 5 --interface 127.9.9.9 http://127.0.0.1:5000/platform",
    "at another address": "curl -s -m 5 http://127.3.2.1:5000/platform",
    "with a command": "curl -s -m 5 -H 'Content-Type: text/plain' -d '{\"command\": [\"true\"]}' http://127.0.0.1:5000/execute",
}


@pytest.mark.parametrize("command", FROM_INSIDE.values(), ids=FROM_INSIDE.keys())
def test_programs_in_the_guest_are_sent_away(desktop: Desktop, command: str) -> None:
    assert json.loads(desktop.shell(command))["message"] == "the control server is not for programs in the guest"


def test_programs_in_the_guest_cannot_come_from_where_the_host_comes_from(desktop: Desktop) -> None:
    told = desktop.shell("curl -s -S -m 5 --local-port 1-1023 http://127.0.0.1:5000/platform")

    assert "Linux" not in told
    assert "curl: " in told
