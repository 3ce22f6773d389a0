"""Looking at a lease's desktop in a browser: one address, opened once; nothing passes that its view does not allow."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from rollout_tasks.cli.desktops import application
from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import connect
from rollout_tasks.service_client import AsyncDesktopClient, DesktopClient, DesktopServiceError, Outcome
from tests.conftest import ValkeyServer
from tests.integration.service.desktop_service import OPERATOR, DesktopService, acquired, act
from tests.integration.service.guest_vnc import SERVER_INIT, GuestVNC, guest_vnc
from tests.integration.service.view_browser import Browser
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool
from vm_pool.providers.remote.options import TOKEN_VARIABLE
from vm_pool.states import Endpoint, VMState

exceptions = pytest.importorskip("websockets.exceptions", reason="the package websockets is not installed")

POOL = "viewed"
VM = "shown-1"
BEGINNING = b"RFB 003.008\n\x01\x01"
UPDATE = bytes([3, 0, 0, 0, 0, 0, 5, 0, 4, 0])
KEY = bytes([4, 1, 0, 0, 0, 0, 0, 97])
KEY_UP = bytes([4, 0, 0, 0, 0, 0, 0, 97])


class ViewedService(DesktopService):
    """A service with noVNC, whose people may help."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "XDG_DATA_DIRS": str(self.folder / "share")}

    @property
    def script(self) -> Path:
        return self.folder / "share" / "novnc" / "core" / "rfb.js"


@pytest.fixture(scope="module")
def guest() -> Iterator[GuestVNC]:
    with guest_vnc() as made:
        yield made


@pytest.fixture(scope="module")
def viewed_pool(valkey_of_service: ValkeyServer, guest: GuestVNC) -> Iterator[VMPool]:
    with connect(tries=1, url=valkey_of_service.url) as client:
        pool = VMPool(client, POOL)
        pool.register(VM, Endpoint("127.0.0.1", {"control": 5001, "vnc": guest.port}))
        yield pool
        pool.close()


@pytest.fixture(scope="module")
def viewed(
    valkey_of_service: ValkeyServer, viewed_pool: VMPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ViewedService]:
    folder = tmp_path_factory.mktemp("viewed")
    (folder / "share" / "novnc" / "core").mkdir(parents=True)
    (folder / "share" / "novnc" / "core" / "rfb.js").write_text("export default 1;", encoding="utf-8")
    (folder / "share" / "secret.js").write_text("secret", encoding="utf-8")
    (folder / "share" / "novnc" / "core" / "out.js").symlink_to(folder / "share" / "secret.js")
    made = ViewedService(valkey_of_service, folder, "--pool", POOL, "--allow-help")
    yield made
    made.stop()
    assert "Traceback" not in made.said()


@pytest.fixture
def bob(viewed: ViewedService, viewed_pool: VMPool) -> Iterator[httpx.Client]:
    token = viewed.token("bob", 4)
    with viewed.client(token) as client:
        yield client
    with viewed.client() as client:
        for one in client.get("/leases").json()["leases"]:
            client.delete(f"/leases/{one['lease_id']}")
    if any(one.name == "bob" for one in viewed.tokens.all()):
        viewed.tokens.revoke("bob")
    wait_until(lambda: all(vm.state is VMState.FREE for vm in viewed_pool.status().vms), seconds=10)


@pytest.fixture
def lease(bob: httpx.Client) -> dict[str, Any]:
    return acquired(bob, item="one")


def asked(client: httpx.Client, lease: dict[str, Any], **changes: Any) -> httpx.Response:
    return client.post(f"/leases/{lease['lease_id']}/view", json={"fence": lease["fence"], **changes})


def opened(service: DesktopService, client: httpx.Client, lease: dict[str, Any], **changes: Any) -> Browser:
    reply = asked(client, lease, **changes)
    assert reply.status_code == 201, reply.text
    browser = Browser(service.url, reply.json()["path"])
    assert browser.hand_in().status_code == 204
    return browser


class Shown:
    """A connection that has begun."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.wait_for(b"RFB 003.008\n")  # a viewer that speaks first is none
        connection.send(BEGINNING)
        self.wait_for(SERVER_INIT)

    def wait_for(self, end: bytes) -> None:
        seen = b""
        while not seen.endswith(end):
            seen += self.connection.recv(timeout=20)

    def update(self) -> None:
        """Returns once the desktop has answered, and so has all that was sent before."""
        self.connection.send(UPDATE)
        self.wait_for(b"\x00\x00\x00\x00")


def status_of(refused: Any) -> int:
    return int(refused.value.response.status_code)


def test_a_page_gets_a_cookie_for_its_ticket_once(
    viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any]
) -> None:
    view = asked(bob, lease).json()
    assert (view["help"], view["ticket_seconds"]) == (False, 120.0)
    browser = Browser(viewed.url, view["path"])
    page = browser.http.get(browser.page)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    for name, value in (
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ):
        assert page.headers[name] == value
    assert browser.http.get(f"{browser.page}view.js").headers["content-type"] == "text/javascript; charset=utf-8"
    assert browser.http.get(f"{browser.page}state").status_code == 401, "the address alone shows nothing"

    reply = browser.hand_in()
    assert reply.status_code == 204
    given = reply.headers["set-cookie"]
    assert f"Path={browser.page.rstrip('/')};" in given
    assert {"HttpOnly", "SameSite=strict"} <= set(given.split("; "))
    assert "Secure" not in given, "it came without TLS"
    state = browser.http.get(f"{browser.page}state").json()
    assert state == {"lease_id": lease["lease_id"], "question": "Do the work of one.", "help": False}
    again = Browser(viewed.url, view["path"]).hand_in()
    assert (again.status_code, "ask for a new view" in again.json()["detail"]) == (403, True)
    assert browser.http.get(f"{browser.page}state").status_code == 200
    assert browser.ticket not in viewed.said()


def test_of_an_unknown_view_no_ticket_is_read(viewed: ViewedService) -> None:
    """Anybody may send one: unfinished ones would take up connections."""
    head = f"POST /views/{'0' * 32}/ticket HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nContent-Length: 99\r\n\r\n"
    with socket.create_connection(("127.0.0.1", viewed.port), timeout=4) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403 ")


def test_behind_tls_the_cookie_is_for_tls_alone(
    viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any]
) -> None:
    browser = Browser(viewed.url, asked(bob, lease).json()["path"])
    reply = browser.hand_in(Origin="https://desktops.example", Host="desktops.example")
    assert "Secure" in reply.headers["set-cookie"].split("; ")


def test_who_has_no_right_to_the_lease_gets_no_view(
    viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any]
) -> None:
    carol = viewed.token("carol", 1)
    try:
        with viewed.client(carol) as other, viewed.client("") as nobody, viewed.client() as operator:
            assert asked(other, lease).status_code == 404
            assert asked(nobody, lease).status_code == 401
            assert asked(operator, lease).status_code == 201
    finally:
        viewed.tokens.revoke("carol")
    stale = bob.post(f"/leases/{lease['lease_id']}/view", json={"fence": lease["fence"] - 1})
    assert (stale.status_code, stale.json()["detail"]) == (
        409,
        f"the fence {lease['fence'] - 1} is not that of the lease",
    )
    assert asked(bob, lease, help="yes").status_code == 422
    waiting = bob.post("/leases", json={"item": "two"}).json()
    assert bob.post(f"/leases/{waiting['lease_id']}/view", json={"fence": 1}).status_code == 409
    browser, others = opened(viewed, bob, lease), opened(viewed, bob, lease)
    browser.http.cookies = others.http.cookies
    held = others.http.cookies.get(others.cookie)
    reply = browser.http.get(f"{browser.page}state", headers={"Cookie": f"{browser.cookie}={held}"})
    assert reply.status_code == 403, "a view's cookie is for this view"


def test_only_this_services_pages_connect(viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any]) -> None:
    browser = opened(viewed, bob, lease)
    for origin in (
        "http://evil.example",
        f"http://localhost:{viewed.port}",
        f"https://127.0.0.1:{viewed.port + 1}",
        None,
        "null",
    ):
        with pytest.raises(exceptions.InvalidStatus) as refused:
            browser.socket(origin=origin)
        assert status_of(refused) == 403
    for cookie in ("", "guessed"):
        with pytest.raises(exceptions.InvalidStatus) as refused:
            browser.socket(cookie=cookie)
        assert status_of(refused) == (401 if not cookie else 403)
    foreign = Browser(viewed.url, asked(bob, lease).json()["path"])
    assert foreign.hand_in(Origin="http://evil.example").status_code == 403
    assert foreign.hand_in().status_code == 204, "a refused page does not use the ticket up"


def test_scripts_come_from_novncs_folder_alone(viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any]) -> None:
    browser = opened(viewed, bob, lease)
    script = browser.http.get(f"{browser.page}novnc/core/rfb.js")
    assert (script.text, script.headers["content-type"]) == ("export default 1;", "text/javascript; charset=utf-8")
    for name in ("core/out.js", "core/%2e%2e/%2e%2e/secret.js", "%2fetc/passwd", "core/", ""):
        assert browser.http.get(f"{browser.page}novnc/{name}").status_code == 404, name
    assert httpx.get(f"{viewed.url}{browser.page}novnc/core/rfb.js").status_code == 401


def test_without_novnc_the_package_is_named(viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any]) -> None:
    away = viewed.script.with_suffix(".away")
    os.rename(viewed.script, away)  # noqa: PTH104
    try:
        reply = asked(bob, lease)
    finally:
        os.rename(away, viewed.script)  # noqa: PTH104
    assert reply.status_code == 501
    assert reply.json()["detail"].endswith("share/novnc): apt-get install novnc")


def test_who_looks_sees_and_changes_nothing(
    viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any], guest: GuestVNC
) -> None:
    guest.received.clear()
    browser = opened(viewed, bob, lease)
    with browser.socket() as connection:
        shown = Shown(connection)
        connection.send(KEY + b"\x05\x01\x00\x01\x00\x01")
        connection.send(b"\x06\x00\x00\x00\x00\x00\x00\x02hi")
        shown.update()
        assert bytes(guest.received) == UPDATE
        assert set(guest.paths) == {"/websockify"}
        connection.send(b"\x07unknown")
        with pytest.raises(exceptions.ConnectionClosed):
            while True:
                connection.recv(timeout=20)
    assert "a message of a type that is not known here: 7" in viewed.said()
    assert guest.gone.wait(20), "the desktop's end is closed, too"
    assert bob.get(f"/leases/{lease['lease_id']}").json()["helped"] is False


def test_who_helps_is_named_in_state_record_and_outcome(
    viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any], guest: GuestVNC
) -> None:
    guest.received.clear()
    browser = opened(viewed, bob, lease, help=True)
    path = f"/leases/{lease['lease_id']}"
    with browser.socket() as connection:
        shown = Shown(connection)
        shown.update()
        assert bob.get(path).json()["helped"] is False, "it was only looked at"
        connection.send(KEY)
        shown.update()
        assert bytes(guest.received) == UPDATE + KEY + UPDATE
        assert bob.get(path).json()["helped"] is True
    wait_until(lambda: bytes(guest.received).endswith(UPDATE + KEY_UP), seconds=20)  # what was held is released
    assert f"lease {lease['lease_id']}: a person uses its desktop, in a view of bob\n" in viewed.said()

    for number in range(3):
        act(bob, lease, f"k{number}")
    with browser.socket() as connection:
        shown = Shown(connection)
        guest.received.clear()
        connection.send(KEY + KEY_UP)
        shown.update()
        assert bytes(guest.received) == UPDATE, "the episode is over: what it left is scored as it is"
    end = bob.post(f"{path}/evaluate", json={"fence": lease["fence"]}).json()
    assert (end["score"], end["helped"]) == (1.0, True)
    assert Outcome.from_json(end).helped is True
    assert bob.get(f"{path}/record/session.json").json()["helped"] is True


def test_help_is_the_operators_to_allow(service: DesktopService, alice: httpx.Client) -> None:
    reply = asked(alice, acquired(alice, item="one"), help=True)
    assert reply.status_code == 403
    assert "rollouts desktops serve --allow-help" in reply.json()["detail"]


@pytest.mark.parametrize("by", ["release", "revoke"])
def test_a_view_ends_with_its_lease_and_its_token(
    viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any], guest: GuestVNC, by: str
) -> None:
    browser, unopened = opened(viewed, bob, lease), Browser(viewed.url, asked(bob, lease).json()["path"])
    with browser.socket() as connection:
        Shown(connection)
        if by == "release":
            assert bob.delete(f"/leases/{lease['lease_id']}").json() == {"released": True}
        else:
            viewed.tokens.revoke("bob")
        with pytest.raises(exceptions.ConnectionClosed):
            while True:
                connection.recv(timeout=20)
    said = "the lease is over" if by == "release" else "was revoked"
    for reply in (browser.http.get(f"{browser.page}state"), unopened.hand_in()):
        assert (reply.status_code, said in reply.json()["detail"]) == (410, True)
    with pytest.raises(exceptions.InvalidStatus) as refused:
        browser.socket()
    assert status_of(refused) == 410
    assert guest.gone.wait(20)


def test_a_desktop_without_vnc_says_so(viewed: ViewedService, bob: httpx.Client, viewed_pool: VMPool) -> None:
    viewed_pool.register("blind-1", Endpoint("127.0.0.1", {"control": 5001}))
    try:
        leases = [acquired(bob, item=item) for item in ("one", "two")]
        said = {one["vm_id"]: asked(bob, one) for one in leases}
        assert (said[VM].status_code, said["blind-1"].status_code) == (201, 409)
        sentence = "this lease's environment shows nothing: it has no desktop with a VNC port"
        assert said["blind-1"].json() == {"detail": sentence}
        for one in leases:
            bob.delete(f"/leases/{one['lease_id']}")
    finally:
        viewed_pool.remove(["blind-1"])


def test_views_are_bounded_and_those_that_nobody_opened_make_room(
    viewed: ViewedService, bob: httpx.Client, lease: dict[str, Any]
) -> None:
    first = opened(viewed, bob, lease)
    for _ in range(4):
        opened(viewed, bob, lease)
    assert first.http.get(f"{first.page}state").status_code == 403
    last = opened(viewed, bob, lease)
    with ExitStack() as ends:
        for _ in range(4):
            Shown(ends.enter_context(last.socket()))
        with pytest.raises(exceptions.InvalidStatus) as refused:
            last.socket()
    assert status_of(refused) == 429


def test_the_clients_and_the_command_give_addresses(
    viewed: ViewedService, bob: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, OPERATOR)
    with DesktopClient(viewed.url, OPERATOR) as client, client.lease(item="one") as lease:
        given = [lease.view(), lease.view(may_help=True), client.view(lease.state.lease_id)]
        command = ["view", lease.state.lease_id, "--url", viewed.url, "--may-help"]
        done = CliRunner().invoke(application, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        for address in (*given, done.stdout.strip()):
            assert Browser(viewed.url, address.removeprefix(viewed.url)).hand_in().status_code == 204
    with pytest.raises(UserError, match="lease gone-1: there is no such lease"):
        CliRunner().invoke(application, ["view", "gone-1", "--url", viewed.url], catch_exceptions=False)
    monkeypatch.setenv(TOKEN_VARIABLE, "")
    with pytest.raises(UserError, match=f"{TOKEN_VARIABLE} is not set"):
        CliRunner().invoke(application, ["view", "x", "--url", viewed.url], catch_exceptions=False)


@pytest.mark.parametrize(
    ("typed", "token", "said"),
    [
        ("{id}/record", OPERATOR, "there is no such lease"),  # and not what another route says
        ("{id}?x=1", OPERATOR, "there is no such lease"),
        ("../items", OPERATOR, "there is no such lease"),
        ("\udcff", OPERATOR, "there is no such lease"),
        ("", OPERATOR, "there is no such lease"),
        ("{id}", "two\nlines", "has letters or blanks that no token has"),
        ("{id}", "t\u00f6ken", "has letters or blanks that no token has"),
    ],
)
def test_what_an_operator_mistypes_is_one_sentence(
    viewed: ViewedService,
    lease: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    typed: str,
    token: str,
    said: str,
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with pytest.raises(UserError, match=said) as refused:
        command = ["view", typed.format(id=lease["lease_id"]), "--url", viewed.url]
        CliRunner().invoke(application, command, catch_exceptions=False)
    assert token not in str(refused.value)


def test_another_programs_address_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, OPERATOR)
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(UserError, match="what answers at this address is no desktop service"):
            CliRunner().invoke(application, ["view", "x", "--url", url], catch_exceptions=False)
        thread.join()


def test_coroutines_give_addresses(viewed: ViewedService, bob: httpx.Client) -> None:
    async def run() -> str:
        async with AsyncDesktopClient(viewed.url, OPERATOR) as client, client.lease() as lease:
            with pytest.raises(DesktopServiceError, match="there is no such lease"):
                await client.view("gone-1")
            return await lease.view()

    assert asyncio.run(run()).startswith(f"{viewed.url}/views/")
