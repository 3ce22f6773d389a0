"""The routes below /leases: what clients get, what is refused, and who sees whose leases."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integration.service.desktop_service import DesktopService, acquired, act
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool


def test_an_item_is_played_to_its_score(alice: httpx.Client) -> None:
    lease = acquired(alice, item="one")
    path = f"/leases/{lease['lease_id']}"
    assert (lease["item_id"], lease["question"], lease["max_turns"]) == ("one", "Do the work of one.", 50)
    assert [tool["function"]["name"] for tool in lease["tools"]] == ["work"]
    seen = alice.get(f"{path}/observe", params={"fence": lease["fence"]}).json()
    assert seen == {"text": "3 steps to do", "screenshots": [], "turn": 0}
    steps = [act(alice, lease, f"act-{number}") for number in range(3)]
    assert [step.json()["response"] for step in steps] == ["2 steps left", "1 steps left", "0 steps left"]
    assert [step.json()["over"] for step in steps] == [None, None, "done"]
    assert steps[0].headers["Server-Timing"].startswith("desktop;dur=")
    assert alice.get(path).json()["state"] == "over"
    assert act(alice, lease, "late").status_code == 409
    end = alice.post(f"{path}/evaluate", json={"fence": lease["fence"]})
    assert (end.status_code, end.json()["reward"], end.json()["turns"]) == (200, 1.0, 3)
    assert alice.post(f"{path}/evaluate", json={"fence": lease["fence"]}).json() == end.json()
    refused = act(alice, lease, "later")
    assert (refused.status_code, refused.json()) == (
        410,
        {"detail": "the lease is over: the session was evaluated and is over"},
    )
    record = alice.get(f"{path}/record").json()
    assert [file["name"] for file in record["files"]] == ["session.json", "trajectory.jsonl"]
    content = alice.get(f"{path}/record/trajectory.jsonl")
    assert len(content.content) == record["files"][1]["bytes"]
    assert [json.loads(line)["kind"] for line in content.text.splitlines()][:2] == ["start", "observation"]


def test_a_task_may_come_with_the_request(alice: httpx.Client) -> None:
    lease = acquired(alice, task={"id": "mine", "question": "?", "env_config": {"steps": 1}})
    assert (lease["item_id"], act(alice, lease, "a").json()["over"]) == ("mine", "done")
    osworld = {"id": "its", "instruction": "Open it.", "evaluator": {"func": "x"}, "config": []}
    assert acquired(alice, task=osworld)["question"] == "Open it."


def test_a_bare_desktop_has_nothing_to_evaluate(alice: httpx.Client) -> None:
    lease = acquired(alice)
    assert (lease["item_id"], act(alice, lease, "a").json()["response"]) == (None, "9999 steps left")
    refused = alice.post(f"/leases/{lease['lease_id']}/evaluate", json={"fence": lease["fence"]})
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "a bare desktop has no task to evaluate: release it",
    )
    assert alice.delete(f"/leases/{lease['lease_id']}").json() == {"released": True}
    assert alice.delete(f"/leases/{lease['lease_id']}").json() == {"released": False}


def test_calls_that_are_sent_again_happen_once(alice: httpx.Client) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: acquired(alice, item="one", key="first")["lease_id"], range(4)))
        assert len(set(found)) == 1
        lease = acquired(alice, item="one", key="first")
        steps = list(threads.map(lambda _: act(alice, lease, "a").json(), range(8)))
    assert {step["turn"] for step in steps} == {1}
    assert alice.get(f"/leases/{found[0]}").json()["turns"] == 1
    other = act(alice, lease, "a", arguments={"hard": 1})
    assert (other.status_code, other.json()["detail"]) == (409, "the key a names another act: each act needs a new one")
    assert act(alice, lease, "b").json()["turn"] == 2
    assert "was carried out before the last one" in act(alice, lease, "a").json()["detail"]
    assert alice.post("/leases", json={"item": "two", "key": "first"}).status_code == 409
    alice.delete(f"/leases/{lease['lease_id']}")
    again = alice.post("/leases", json={"item": "one", "key": "first"})
    assert (again.status_code, again.json()["detail"]) == (410, "the lease is over: its client released it")


def test_an_act_that_comes_again_late_is_in_nobodys_way(service: DesktopService, token: str) -> None:
    """As one whose client did not wait for the answer, and has sent it again and the next one meanwhile."""
    with service.client(token) as client, service.client(token) as late, ThreadPoolExecutor(8) as threads:
        for _ in range(8):
            lease = acquired(client)
            turns = []
            for number in range(3):
                again = [threads.submit(act, late, lease, f"act-{number - 1}") for _ in range(6 if number else 0)]
                reply = act(client, lease, f"act-{number}")
                assert reply.status_code == 200, reply.text
                turns.append(reply.json()["turn"])
                assert {one.result().status_code for one in again} <= {200, 409}
            assert turns == [1, 2, 3]
            client.delete(f"/leases/{lease['lease_id']}")


def test_a_stale_client_is_refused(alice: httpx.Client, lent_pool: VMPool) -> None:
    lease = acquired(alice, item="one")
    path = f"/leases/{lease['lease_id']}"
    for wrong in (lease["fence"] - 1, lease["fence"] + 1, 0):
        assert act(alice, lease, "a", fence=wrong).status_code == 409
        assert alice.post(f"{path}/renew", json={"fence": wrong}).status_code == 409
        assert alice.get(f"{path}/observe", params={"fence": wrong}).status_code == 409
        assert alice.post(f"{path}/evaluate", json={"fence": wrong}).status_code == 409
    assert alice.get(path).json()["turns"] == 0
    lent_pool.force_release(lease["vm_id"])
    wait_until(lambda: alice.get(path).json()["state"] == "ended", seconds=10)
    refused = act(alice, lease, "a")
    assert (refused.status_code, refused.json()["failure_class"]) == (410, "lease_lost")


def test_quotas_hold_and_places_in_the_queue_are_told(service: DesktopService, alice: httpx.Client) -> None:
    first, second = acquired(alice), acquired(alice)
    assert first["vm_id"] != second["vm_id"]
    refused = alice.post("/leases", json={})
    assert refused.status_code == 429
    assert refused.json()["detail"] == "alice has 2 leases, and its quota is 2: release one first"
    with service.client() as boss:
        waiting = boss.post("/leases", json={}).json()
        path = f"/leases/{waiting['lease_id']}"
        assert waiting["state"] == "waiting"
        wait_until(lambda: boss.get(path).json()["place"] == 1, seconds=10)
        assert boss.post(f"{path}/renew", json={"fence": 1}).status_code == 409
        with ThreadPoolExecutor(1) as threads:
            polled = threads.submit(boss.get, path, params={"wait_seconds": 30})
            assert alice.delete(f"/leases/{first['lease_id']}").json() == {"released": True}
            while polled.result().json()["state"] != "ready":
                polled = threads.submit(boss.get, path, params={"wait_seconds": 30})
        assert polled.result().json()["vm_id"] == first["vm_id"]
        assert alice.post("/leases", json={}).status_code == 202  # what was released no longer counts
        boss.delete(path)


def test_users_see_their_own_leases_and_operators_all(service: DesktopService, alice: httpx.Client) -> None:
    lease = acquired(alice, item="one")
    bob = service.token("bob", 1)
    with service.client(bob) as stranger:
        assert stranger.get("/leases").json() == {"leases": []}
        for method, path in (("GET", ""), ("GET", "/record"), ("DELETE", ""), ("GET", "/record/trajectory.jsonl")):
            assert stranger.request(method, f"/leases/{lease['lease_id']}{path}").status_code == 404
        assert act(stranger, lease, "a").status_code == 404
        service.tokens.revoke("bob")
        wait_until(lambda: stranger.get("/leases").status_code == 403, seconds=5)
    with service.client() as boss:
        assert [one["lease_id"] for one in boss.get("/leases").json()["leases"]] == [lease["lease_id"]]


LONG = "x" * (1 << 20)
BAD = [
    ("POST", "/leases", b"{", 400, "the body is not JSON at line 1 column 2"),
    ("POST", "/leases", b'{"index": NaN}', 400, "NaN is not a number"),
    ("POST", "/leases", b'{"item": "\xff"}', 400, "the body is not UTF-8 at byte 10"),
    ("POST", "/leases", b"[]", 422, "the body must be a JSON object"),
    ("POST", "/leases", b'{"items": "one"}', 422, "items: is not an option; did you mean item?"),
    ("POST", "/leases", b'{"item": 1}', 422, "item: must be text, got 1"),
    ("POST", "/leases", b'{"item": "\\ud800"}', 422, "item: "),
    ("POST", "/leases", b'{"item": "three"}', 404, "there is no item 'three'"),
    ("POST", "/leases", b'{"item": "one", "task": {}}', 422, "item and task: say one of them"),
    ("POST", "/leases", b'{"task": []}', 422, "task: must be a mapping, got []"),
    ("POST", "/leases", b'{"task": {}}', 422, "task: question is missing"),
    (
        "POST",
        "/leases",
        b'{"task": {"question": "?", "env_config": {"env_mode": ["py"]}}}',
        422,
        "env_mode must be one",
    ),
    ("POST", "/leases", b'{"task": {"id": "../up", "question": "?"}}', 422, "could lead out of a folder"),
    (
        "POST",
        "/leases",
        b'{"task": {"question": "?", "env_config": {"steps": 0}}}',
        422,
        "env_config.steps must be at least 1",
    ),
    (
        "POST",
        "/leases",
        b'{"task": {"question": "?", "env_config": {"env_mode": "py"}}}',
        422,
        "one that this service serves",
    ),
    (
        "POST",
        "/leases",
        b'{"task": {"question": "?", "env_config": {"env_mode": 1}}}',
        422,
        "one that this service serves",
    ),
    ("POST", "/leases", b'{"index": -1}', 422, "index: must be at least 0, got -1"),
    ("POST", "/leases", b'{"index": 1.5}', 422, "index: must be a whole number, got 1.5"),
    ("POST", "/leases", b'{"key": "a b"}', 422, "key: must match"),
    ("POST", "/leases", b'{"wait_seconds": 61}', 422, "wait_seconds: must be at most 60, got 61"),
    ("POST", "/leases", b"[" * 10_000, 400, "nested too deeply"),
    ("POST", "/leases", b'{"task": [' + b"[]," * 100_000 + b"1]}", 422, "the body has more than 20,000 values"),
    ("POST", "/leases", b'{"task": ' + b'{"a":' * 70 + b"1" + b"}" * 71, 422, "nested more than 64 deep"),
    ("POST", "/leases", b'{"item": "' + LONG.encode() + b'"}', 413, "the body has more than 1,048,576 bytes"),
    ("GET", "/leases/none", None, 404, "there is no such lease"),
    ("GET", "/leases/..%2Fup", None, 404, "there is nothing at this path"),
    ("GET", "/leases/%00", None, 404, "there is no such lease"),
    ("GET", "/leases/none?wait_seconds=nan", None, 422, "wait_seconds: "),
    ("POST", "/leases/none/act", b"{}", 404, "there is no such lease"),
    ("POST", "/leases/LEASE/act", b"{}", 422, "fence: is missing"),
    ("POST", "/leases/LEASE/act", b'{"fence": "1"}', 422, "fence: must be a whole number, got 1"),
    ("POST", "/leases/LEASE/act", b'{"fence": 99999999999999999999}', 422, "fence: must be at most"),
    ("POST", "/leases/LEASE/act", b'{"fence": FENCE, "name": "work"}', 422, "key: is missing"),
    ("POST", "/leases/LEASE/act", b'{"fence": FENCE, "key": "", "name": "work"}', 422, "key: must match"),
    ("POST", "/leases/LEASE/act", b'{"fence": FENCE, "key": "k", "name": 1}', 422, "name: must be text, got 1"),
    (
        "POST",
        "/leases/LEASE/act",
        b'{"fence": FENCE, "key": "k", "name": "w", "arguments": []}',
        422,
        "arguments: must be",
    ),
    ("GET", "/leases/LEASE/observe", None, 422, "fence: is missing"),
    ("GET", "/leases/LEASE/observe?fence=x", None, 422, "fence: must be a whole number, got 'x'"),
    ("POST", "/leases/LEASE/renew", b"", 422, "fence: is missing"),
    ("GET", "/leases/LEASE/record/lease.json", None, 404, "the record has no such file"),
    ("GET", "/leases/LEASE/record/..%2F..%2Fitems.jsonl", None, 404, "there is nothing at this path"),
    ("PATCH", "/leases", b"{}", 405, "this path does not take this method"),
    ("GET", "/nothing", None, 404, "there is nothing at this path"),
    ("GET", "/leases/", None, 404, "there is no"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "said"), BAD, ids=range(len(BAD)))
def test_bad_input_is_one_clear_sentence(
    service: DesktopService,
    token: str,
    kept_lease: dict[str, Any],
    *,
    method: str,
    path: str,
    body: bytes | None,
    status: int,
    said: str,
) -> None:
    lease_id, fence = str(kept_lease["lease_id"]), str(kept_lease["fence"])
    content = body if body is None else body.replace(b"FENCE", fence.encode())
    with service.client(token) as client:
        client.post(f"/leases/{lease_id}/renew", json={"fence": kept_lease["fence"]})
        reply = client.request(method, path.replace("LEASE", lease_id), content=content)
    assert (reply.status_code, reply.headers["content-type"]) == (status, "application/json"), reply.text
    assert list(reply.json()) == ["detail"]
    assert said in reply.json()["detail"]
    assert len(reply.json()["detail"]) < 2_100


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("Bearer", 401),
        ("Bearer wrong", 403),
        ("Bearer \xe4", 403),
        ("Basic !", 401),
        ("Basic " + base64.b64encode(b"any:wrong").decode(), 403),
    ],
)
def test_a_token_is_needed(service: DesktopService, header: str | None, status: int) -> None:
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    reply = httpx.get(f"{service.url}/leases", headers=headers)
    assert (reply.status_code, list(reply.json())) == (status, ["detail"])
    assert ("www-authenticate" in reply.headers) == (status == 401)


def test_a_body_in_chunks_is_counted(service: DesktopService, token: str) -> None:
    def pieces() -> Iterator[bytes]:
        while True:
            yield b" " * 65_536

    with service.client(token) as client:
        try:
            reply = client.post("/leases", content=pieces())
        except (httpx.WriteError, httpx.ReadError):  # it was refused while it was being sent
            return
    assert reply.status_code == 413


def test_a_body_that_is_said_to_be_large_is_not_waited_for(service: DesktopService, token: str) -> None:
    head = f"POST /leases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 99999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
