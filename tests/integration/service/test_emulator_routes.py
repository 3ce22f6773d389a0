"""The routes of the older service: the same fields, codes and ways to send a token, over the same leases."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.integration.service.desktop_service import OPERATOR, PORTS, DesktopService, acquired, all_free
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool

EXPECTED_PORTS = {"vnc_port": 8006, "chromium_port": 9222, "vlc_port": 8080, "server_port": 5001}
UNKNOWN = "0f0e7d1c-0000-4000-8000-000000000000"
assert set(EXPECTED_PORTS.values()) == set(PORTS.values())


def started(client: httpx.Client, token: str) -> str:
    reply = client.post("/start_emulator")
    assert reply.status_code == 200, reply.text
    data: dict[str, Any] = reply.json()["data"]
    assert reply.json() == {"message": "Emulator started successfully", "code": 0, "data": data}
    emulator_id = str(data.pop("emulator_id"))
    assert data == {**EXPECTED_PORTS, "token": token}
    return emulator_id


def test_an_emulator_is_started_shown_and_stopped(alice: httpx.Client, token: str) -> None:
    emulator_id = started(alice, token)
    status = alice.get(f"/emulator_status/{emulator_id}").json()
    assert status.pop("container_id") in ("vm-1", "vm-2")
    assert status == {
        "emulator_id": emulator_id,
        "status": "running",
        "token": token,
        "duration_minutes": 0,
        **EXPECTED_PORTS,
    }
    [listed] = alice.get("/emulators").json()
    assert set(listed) == {*status, "start_time", "container_id"} - {"status"}
    assert alice.get("/emulators_by_token", params={"token": token}).json() == [emulator_id]
    assert alice.get("/tokens").json() == {token: {"current": 1, "limit": 2, "emulator_count": 1}}
    whole = alice.get("/status").json()
    assert whole["tokens"] == [{"token": token, "current": 1, "limit": 2, "available": 1}]
    assert (whole["total_emulators"], whole["total_containers_for_image"]) == (1, 2)
    stopped = alice.post("/stop_emulator", json={"emulator_id": emulator_id})
    assert (stopped.status_code, stopped.json()) == (200, {"message": "Emulator stopped successfully", "code": 0})
    gone = alice.get(f"/emulator_status/{emulator_id}")
    assert (gone.status_code, gone.json()) == (
        404,
        {"message": "Emulator not found", "code": 404, "status": "not_found"},
    )


def test_an_emulator_is_started_by_get_and_stopped_by_delete(alice: httpx.Client) -> None:
    emulator_id = alice.get("/start_emulator").json()["data"]["emulator_id"]
    assert alice.delete(f"/emulators/{emulator_id}").json()["code"] == 0
    assert alice.delete(f"/emulators/{emulator_id}").status_code == 404


def test_asking_for_the_head_of_a_reply_starts_no_emulator(alice: httpx.Client) -> None:
    refused = alice.head("/start_emulator")
    assert (refused.status_code, sorted(refused.headers["allow"].split(", "))) == (405, ["GET", "POST"])
    assert alice.get("/emulators").json() == []
    assert alice.head("/health").status_code == 200


def test_the_token_comes_in_three_ways(service: DesktopService, alice: httpx.Client, token: str) -> None:
    with service.client("") as plain:
        in_body = plain.post("/start_emulator", json={"token": token})
        in_query = plain.get("/start_emulator", params={"token": token})
        assert [one.json()["code"] for one in (in_body, in_query)] == [0, 0]
        assert sorted(plain.get("/emulators_by_token", params={"token": token}).json()) == sorted(
            one.json()["data"]["emulator_id"] for one in (in_body, in_query)
        )
        for reply, sent in ((in_body, {}), (in_query, {"token": token})):
            emulator_id = reply.json()["data"]["emulator_id"]
            stop = {"emulator_id": emulator_id, "token": token}
            assert plain.request("POST", "/stop_emulator", json=stop, params=sent).json()["code"] == 0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/start_emulator", None),
        ("POST", "/start_emulator", {}),
        ("POST", "/stop_emulator", {"emulator_id": UNKNOWN}),
        ("DELETE", f"/emulators/{UNKNOWN}", None),
        ("GET", "/status", None),
        ("GET", "/tokens", None),
        ("GET", "/emulators", None),
        ("GET", "/emulators_by_token", None),
        ("GET", f"/emulator_status/{UNKNOWN}", None),
    ],
)
def test_no_token_is_401_and_an_unknown_one_403(
    service: DesktopService, method: str, path: str, body: dict[str, str] | None
) -> None:
    with service.client("") as plain:
        none = plain.request(method, path, json=body)
        unknown = plain.request(method, path, json=body, params={"token": "unknown"})
    assert (none.status_code, none.json()) == (401, {"message": "Token required", "code": 401})
    assert (unknown.status_code, unknown.json()["code"]) == (403, 403)


def test_what_is_wrong_has_its_code(alice: httpx.Client) -> None:
    for reply, code in (
        (alice.post("/stop_emulator", json={}), 400),
        (alice.post("/stop_emulator", json={"emulator_id": UNKNOWN}), 404),
        (alice.post("/stop_emulator", content=b"{"), 400),
        (alice.post("/stop_emulator", content=b"[]"), 400),
        (alice.delete(f"/emulators/{UNKNOWN}"), 404),
        (alice.get("/emulator_status/.."), 404),
        (alice.post("/set_token_limit", json={"token": "alice", "limit": 3}), 403),
    ):
        assert reply.status_code == code
    assert alice.get("/ping").json() == {"message": "pong"}


def test_quotas_are_shared_with_leases(alice: httpx.Client, token: str) -> None:
    acquired(alice)
    emulator_id = started(alice, token)
    over = alice.get("/start_emulator")
    assert (over.status_code, over.json()["code"]) == (429, 429)
    assert "its quota is 2" in over.json()["message"]
    assert alice.get("/tokens").json() == {token: {"current": 2, "limit": 2, "emulator_count": 1}}
    alice.delete(f"/emulators/{emulator_id}")


def test_only_operators_see_others_and_set_limits(service: DesktopService, alice: httpx.Client, token: str) -> None:
    emulator_id = started(alice, token)
    other = service.token("dave", 1)
    with service.client(other) as dave, service.client() as boss:
        assert dave.get("/emulators").json() == []
        assert dave.get("/emulators_by_token", params={"token": token}).json() == []
        assert dave.delete(f"/emulators/{emulator_id}").status_code == 403
        assert dave.get(f"/emulator_status/{emulator_id}").status_code == 403
        assert [one["token"] for one in boss.get("/emulators").json()] == ["alice"]
        assert boss.get("/emulators", params={"token": "dave"}).json() == []
        assert set(boss.get("/tokens").json()) == {"alice", "dave", OPERATOR}
        for named in (other, "dave"):
            limited = boss.post("/set_token_limit", json={"token": named, "limit": 0})
            assert limited.json() == {"message": "Token of dave limit set to 0", "code": 0}
        assert dave.get("/start_emulator").status_code == 429
        for body, code in (({"token": "nobody", "limit": 1}, 400), ({"token": "dave"}, 400), ({"limit": 1}, 400)):
            assert boss.post("/set_token_limit", json=body).status_code == code
        assert boss.delete(f"/emulators/{emulator_id}").json()["code"] == 0
    service.tokens.revoke("dave")


def test_the_leases_of_a_revoked_token_end_and_are_not_those_of_the_next(
    service: DesktopService, lent_pool: VMPool
) -> None:
    with service.client(service.token("erin", 1)) as erin:
        old = erin.post("/start_emulator").json()["data"]["emulator_id"]
    service.tokens.revoke("erin")
    fresh = service.token("erin", 1)
    with service.client(fresh) as erin:
        assert erin.get("/emulators").json() == []
        assert erin.get(f"/leases/{old}").status_code == 404
        wait_until(lambda: all_free(lent_pool), seconds=20)
        erin.delete(f"/emulators/{started(erin, fresh)}")
    with service.client() as boss:
        assert boss.get(f"/leases/{old}").json()["end"]["error"] == "its client's token was revoked"
    service.tokens.revoke("erin")


def test_a_start_whose_client_goes_away_takes_no_desktop(
    service: DesktopService, alice: httpx.Client, token: str
) -> None:
    held = [started(alice, token) for _ in range(2)]
    with service.client() as boss, ThreadPoolExecutor(1) as threads:

        def give_up() -> None:
            with pytest.raises(httpx.ReadTimeout):
                httpx.get(f"{service.url}/start_emulator", params={"token": OPERATOR}, timeout=1.0)

        threads.submit(give_up).result()
        wait_until(lambda: len(boss.get("/leases").json()["leases"]) == 2, seconds=10)
    for emulator_id in held:
        alice.delete(f"/emulators/{emulator_id}")


def test_bodies_of_unknown_clients_wait_neither_long_nor_in_large_numbers(
    service: DesktopService, alice: httpx.Client
) -> None:
    head = b"POST /start_emulator HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
    with ExitStack() as opened:
        slow = [
            opened.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=20)) for _ in range(65)
        ]
        for one in slow[:-1]:
            one.sendall(head)
        assert alice.get("/emulators").json() == []  # answered, and after what was sent before
        slow[-1].sendall(head)
        assert b" 503 " in slow[-1].recv(4096)
        assert b" 408 " in slow[0].recv(4096)
