"""The tools for MCP clients, by the official client: whole episodes, what is refused, and that nothing happens twice or is left."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tests.conftest import ValkeyServer
from tests.integration.service.desktop_service import OPERATOR, DesktopService, acquired, all_free
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool

pytest.importorskip("mcp_types", reason="the package mcp is not installed")
mcp = pytest.importorskip("mcp")
httpx2 = pytest.importorskip("httpx2")
streamable_http = pytest.importorskip("mcp.client.streamable_http")

_Made = TypeVar("_Made")


class Tools:
    """A connection of the official client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def result(self, tool: str, /, **arguments: Any) -> Any:
        return await self.client.call_tool(tool, arguments)

    async def facts(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """What the service says, where it is no refusal."""
        result = await self.result(tool, **arguments)
        assert not result.is_error, result
        facts: dict[str, Any] = json.loads(result.content[0].text)
        return facts

    async def refused(self, tool: str, /, **arguments: Any) -> tuple[int, str]:
        result = await self.result(tool, **arguments)
        assert result.is_error, result
        assert [one.text for one in result.content] == [result.structured_content["detail"]]
        return result.structured_content["status"], result.content[0].text


def connected(
    service: DesktopService, token: str, use: Callable[[Tools], Awaitable[_Made]], mode: str = "auto"
) -> _Made:
    """What a use of one connection returns."""

    async def connect() -> _Made:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as carrier:
            transport = streamable_http.streamable_http_client(f"{service.url}/mcp", http_client=carrier)
            async with mcp.Client(transport, mode=mode) as client:
                return await use(Tools(client))

    return asyncio.run(connect())


async def ready(tools: Tools, **arguments: Any) -> dict[str, Any]:
    """A lease whose desktop is there, and what each call on it says."""
    lease = await tools.facts("acquire", **arguments)
    while lease["state"] in ("waiting", "setting_up"):
        lease = await tools.facts("show_lease", lease_id=lease["lease_id"])
    assert lease["state"] == "ready", lease
    return lease


def named(lease: dict[str, Any]) -> dict[str, Any]:
    return {"lease_id": lease["lease_id"], "fence": lease["fence"]}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_item_is_played_to_its_score(service: DesktopService, token: str, alice: httpx.Client, mode: str) -> None:
    async def play(tools: Tools) -> None:
        listed = await tools.client.list_tools()
        assert [one.name for one in listed.tools][:3] == ["list_items", "acquire", "show_lease"]
        items = await tools.facts("list_items")
        assert [one["item_id"] for one in items["items"]] == ["one", "two"]
        lease = await ready(tools, item="one")
        assert [one["function"]["name"] for one in lease["tools"]] == ["work"]
        seen = await tools.result("observe", **named(lease))
        assert [one.text for one in seen.content] == ['{"turn": 0, "next_turn": 1}', "3 steps to do"]
        turn = 1
        for left in (2, 1, 0):
            step = await tools.result("act", **named(lease), turn=turn, name="work")
            facts = json.loads(step.content[0].text)
            assert (facts["status"], step.content[1].text) == ("success", f"{left} steps left")
            turn = facts["next_turn"]
        assert facts["over"] == "done"
        end = await tools.facts("evaluate", **named(lease))
        assert (end["evaluated"], end["reward"], end["turns"]) == (True, 1.0, 3)
        assert (await tools.facts("list_leases")) == {"leases": []}
        assert (await tools.facts("release", lease_id=lease["lease_id"])) == {"released": False}

    connected(service, token, play, mode)


def test_a_task_or_nothing_may_be_asked_for(service: DesktopService, token: str, alice: httpx.Client) -> None:
    async def play(tools: Tools) -> None:
        mine = await ready(tools, task={"id": "mine", "question": "你好?", "env_config": {"steps": 1}})
        assert (mine["item_id"], mine["question"]) == ("mine", "你好?")
        bare = await ready(tools)
        assert bare["item_id"] is None
        status, said = await tools.refused("evaluate", **named(bare))
        assert (status, said) == (409, "a bare desktop has no task to evaluate: release it")
        assert await tools.facts("release", lease_id=bare["lease_id"]) == {"released": True}
        listed = await tools.facts("list_leases")
        assert [one["lease_id"] for one in listed["leases"]] == [mine["lease_id"]]
        assert "tools" not in listed["leases"][0]

    connected(service, token, play)


def test_an_act_that_is_sent_again_happens_once(service: DesktopService, token: str, alice: httpx.Client) -> None:
    async def play(tools: Tools) -> None:
        lease = await ready(tools, item="one")
        again = [tools.result("act", **named(lease), turn=1, name="work") for _ in range(6)]
        steps = await asyncio.gather(*again)
        assert {json.loads(step.content[0].text)["turn"] for step in steps} == {1}
        assert {step.content[1].text for step in steps} == {"2 steps left"}
        assert (await tools.facts("show_lease", lease_id=lease["lease_id"]))["next_turn"] == 2
        status, said = await tools.refused("act", **named(lease), turn=1, name="work", arguments={"hard": 1})
        assert (status, said) == (409, "turn 1 is over: observe what the desktop shows now, and go on with turn 2")
        assert (await tools.refused("act", **named(lease), turn=3, name="work"))[
            1
        ] == "turn 3 is too far: the next is 2"
        assert (await tools.facts("act", **named(lease), turn=2, name="work"))["next_turn"] == 3
        status, said = await tools.refused("act", **named(lease), turn=1, name="work")
        assert (status, said[:14]) == (409, "turn 1 is over")

    connected(service, token, play)


def test_an_acquire_with_a_key_finds_its_lease(service: DesktopService, token: str, alice: httpx.Client) -> None:
    async def play(tools: Tools) -> None:
        leases = await asyncio.gather(*(tools.facts("acquire", item="two", key="mine") for _ in range(3)))
        assert len({one["lease_id"] for one in leases}) == 1

    connected(service, token, play)


def test_a_wrong_call_of_a_desktops_tool_is_a_failed_step(
    service: DesktopService, token: str, alice: httpx.Client
) -> None:
    async def play(tools: Tools) -> None:
        lease = await ready(tools, item="one")
        step = await tools.facts("act", **named(lease), turn=1, name="fly")
        assert (step["status"], step["next_turn"]) == ("failed", 2)

    connected(service, token, play)


def test_quotas_hold_and_places_in_the_queue_are_told(service: DesktopService, token: str, alice: httpx.Client) -> None:
    first, _ = acquired(alice), acquired(alice)

    async def over_quota(tools: Tools) -> None:
        said = (429, "alice has 2 leases, and its quota is 2: release one first")
        assert await tools.refused("acquire") == said

    async def wait(tools: Tools) -> None:
        waiting = await tools.facts("acquire", wait_seconds=0)
        assert (waiting["state"], waiting["fence"]) == ("waiting", None)
        lease = {"lease_id": waiting["lease_id"]}
        while waiting["place"] is None:
            waiting = await tools.facts("show_lease", **lease, wait_seconds=0.2)
        assert (waiting["place"], waiting["waiting"]) == (1, 1)
        status, said = await tools.refused("act", **lease, fence=1, turn=1, name="work")
        assert (status, said) == (409, "the lease still waits for a desktop: it has no fence yet")
        assert alice.delete(f"/leases/{first['lease_id']}").json() == {"released": True}
        while (waiting := await tools.facts("show_lease", **lease))["state"] != "ready":
            assert waiting["end"] is None
        assert await tools.facts("release", **lease) == {"released": True}

    connected(service, token, over_quota)
    connected(service, OPERATOR, wait)


def test_a_stale_fence_is_refused(service: DesktopService, token: str, alice: httpx.Client, lent_pool: VMPool) -> None:
    async def play(tools: Tools) -> None:
        lease = await ready(tools, item="one")
        for wrong in (lease["fence"] - 1, lease["fence"] + 1, 0):
            stale = {"lease_id": lease["lease_id"], "fence": wrong}
            for tool, more in (("act", {"turn": 1, "name": "work"}), ("observe", {}), ("evaluate", {})):
                assert await tools.refused(tool, **stale, **more) == (
                    409,
                    f"the fence {wrong} is not that of the lease",
                )
        assert (await tools.facts("show_lease", lease_id=lease["lease_id"]))["turns"] == 0
        lent_pool.force_release(lease["vm_id"])
        while (await tools.facts("show_lease", lease_id=lease["lease_id"], wait_seconds=0))["state"] != "ended":
            await asyncio.sleep(0.1)
        result = await tools.result("act", **named(lease), turn=1, name="work")
        assert (result.is_error, result.structured_content["failure_class"]) == (True, "lease_lost")

    connected(service, token, play)


def test_users_call_their_own_leases_alone(service: DesktopService, token: str, alice: httpx.Client) -> None:
    lease = acquired(alice, item="one")
    other = service.token("eve", 1)

    async def try_them(tools: Tools) -> None:
        for tool, more in (("act", {"turn": 1, "name": "work"}), ("observe", {}), ("evaluate", {})):
            assert await tools.refused(tool, **named(lease), **more) == (404, "there is no such lease")
        for tool in ("show_lease", "release"):
            assert await tools.refused(tool, lease_id=lease["lease_id"]) == (404, "there is no such lease")
        assert await tools.facts("list_leases") == {"leases": []}
        service.tokens.revoke("eve")
        with pytest.raises(mcp.MCPError) as refused:
            while True:  # until the service knows it
                await tools.facts("list_leases")
        assert str(refused.value.message) == "the token is not known here, or was revoked"

    connected(service, other, try_them)


@pytest.mark.parametrize(
    ("token", "said"),
    [("", "a token is needed: Authorization: Bearer TOKEN"), ("wrong", "the token is not known here, or was revoked")],
)
def test_a_connection_needs_a_token(service: DesktopService, token: str, said: str) -> None:
    async def nothing(_tools: Tools) -> None:
        raise AssertionError("it was connected")

    with pytest.raises(BaseException) as refused:  # noqa: PT011 - groups of groups, as anyio makes them
        connected(service, token, nothing)
    assert said in messages_of(refused.value)


def messages_of(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [said for one in error.exceptions for said in messages_of(one)]
    return [getattr(error, "message", str(error))]


def test_nothing_is_read_of_whoever_has_no_token(service: DesktopService) -> None:
    for header, status in (("", 401), ("Authorization: Bearer wrong\r\n", 403)):
        head = f"POST /mcp HTTP/1.1\r\nHost: x\r\n{header}Content-Length: 99999\r\n\r\n"
        with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
            connection.sendall(head.encode())
            assert connection.recv(100).startswith(f"HTTP/1.1 {status}".encode())


def posted(client: httpx.Client, body: bytes | dict[str, Any], **headers: str) -> httpx.Response:
    """The reply to a message as it is sent, by no client of MCP."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    return client.post("/mcp", content=content, headers=sent)


def call(tool: object, arguments: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def facts_in(reply: httpx.Response) -> dict[str, Any]:
    result = reply.json()["result"]
    assert "isError" not in result or not result["isError"], result
    facts: dict[str, Any] = json.loads(result["content"][0]["text"])
    return facts


def leases_of(client: httpx.Client) -> list[str]:
    return [one["lease_id"] for one in client.get("/leases").json()["leases"]]


@pytest.mark.parametrize("key", [None, "found-again"])
def test_a_client_that_goes_away_while_it_waits(service: DesktopService, alice: httpx.Client, key: str | None) -> None:
    """Without a key nobody can find its lease again, so it ends; with a key, the same call goes on with it."""
    held = [acquired(alice), acquired(alice)]
    with service.client() as boss:
        with (
            pytest.raises(httpx.ReadTimeout),
            httpx.Client(base_url=boss.base_url, headers=boss.headers, timeout=1.5) as hasty,
        ):
            posted(hasty, call("acquire", {"key": key} if key else {}))
        if key is None:
            wait_until(lambda: sorted(leases_of(boss)) == sorted(one["lease_id"] for one in held), seconds=10)
            return
        waiting = facts_in(posted(boss, call("acquire", {"key": key, "wait_seconds": 0})))
        assert waiting["state"] == "waiting"
        assert leases_of(boss)[2:] == [waiting["lease_id"]]
        assert facts_in(posted(boss, call("release", {"lease_id": waiting["lease_id"]}))) == {"released": True}


def test_a_client_that_goes_away_while_it_acts_loses_nothing(service: DesktopService, alice: httpx.Client) -> None:
    task = {"id": "slow", "question": "?", "env_config": {"seconds": [4, 4], "steps": 2}}
    lease = acquired(alice, task=task)
    act = call("act", {**named(lease), "turn": 1, "name": "work"})
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.Client(base_url=alice.base_url, headers=alice.headers, timeout=0.5) as hasty,
    ):
        posted(hasty, act)
    other = posted(alice, call("act", {**named(lease), "turn": 1, "name": "other"})).json()["result"]
    assert other["content"][0]["text"] == "an earlier act of this lease is still being carried out"
    reply = posted(alice, act)
    assert (facts_in(reply)["turn"], reply.json()["result"]["content"][1]["text"]) == (1, "1 steps left")
    assert alice.get(f"/leases/{lease['lease_id']}").json()["turns"] == 1


@pytest.fixture
def impatient_service(valkey_of_service: ValkeyServer, lent_pool: VMPool, tmp_path: Path) -> Iterator[DesktopService]:
    """One whose clients may be silent for two seconds."""
    made = DesktopService(valkey_of_service, tmp_path, ttl=2.0)
    yield made
    made.stop()
    assert all_free(lent_pool)
    assert "Traceback" not in made.said()


@pytest.mark.slow
def test_a_silent_client_loses_its_lease_though_it_stays_connected(
    impatient_service: DesktopService, lent_pool: VMPool
) -> None:
    async def play(tools: Tools) -> None:
        silent, kept = await ready(tools), await ready(tools)
        until = time.monotonic() + 4.0
        while time.monotonic() < until:
            assert (await tools.facts("show_lease", lease_id=kept["lease_id"]))["state"] == "ready"
            await tools.client.session.list_tools()  # which is a sign of life of no lease
            await asyncio.sleep(0.2)
        status, said = await tools.refused("act", **named(silent), turn=1, name="work")
        assert (status, said) == (410, "the lease is over: its client was silent for 2 s")
        assert await tools.facts("release", lease_id=kept["lease_id"]) == {"released": True}

    connected(impatient_service, OPERATOR, play)


@pytest.mark.parametrize(
    ("origin", "status"), [("http://localhost:6274", 200), ("http://evil.example", 403), ("null", 403)]
)
def test_pages_of_other_machines_are_refused(service: DesktopService, token: str, origin: str, status: int) -> None:
    with service.client(token) as client:
        assert posted(client, call("list_leases", {}), Origin=origin).status_code == status


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_there_are_no_sessions_to_listen_to_or_to_end(service: DesktopService, token: str, method: str) -> None:
    with service.client(token) as client:
        reply = client.request(method, "/mcp", headers={"Accept": "text/event-stream"})
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
        begun = posted(client, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
    assert begun.json()["result"]["serverInfo"]["name"] == "desktops"
    assert "ends when no call names it for 20 seconds" in begun.json()["result"]["instructions"]
    assert "mcp-session-id" not in begun.headers


INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
FULL = {"lease_id": "LEASE", "fence": "FENCE", "turn": 1, "name": "work"}
BAD_ARGUMENTS: list[tuple[str, dict[str, Any], int, str]] = [
    ("list_items", {"offset": -1}, 422, "offset: must be at least 0, got -1"),
    ("list_items", {"offset": 1.5}, 422, "offset: must be a whole number, got 1.5"),
    ("list_items", {"limit": 5}, 422, "limit: is not an option"),
    ("list_leases", {"all": True}, 422, "all: "),
    ("acquire", {"item": 1}, 422, "item: must be text, got 1"),
    ("acquire", {"item": "three"}, 404, "there is no item 'three'"),
    ("acquire", {"item": "x" * 100_000}, 422, "item: "),
    ("acquire", {"item": "one", "task": {}}, 422, "item and task: say one of them"),
    ("acquire", {"task": {"id": "../up", "question": "?"}}, 422, "could lead out of a folder"),
    ("acquire", {"key": "a b"}, 422, "key: must match"),
    ("acquire", {"wait_seconds": 61}, 422, "wait_seconds: must be at most 60, got 61"),
    ("acquire", {"wait_seconds": "30"}, 422, "wait_seconds: must be a number, got 30"),
    ("show_lease", {"lease_id": "../../etc"}, 404, "there is no such lease"),
    ("show_lease", {"lease_id": "\0"}, 404, "there is no such lease"),
    ("show_lease", {}, 422, "lease_id: is missing"),
    ("observe", {"lease_id": "LEASE"}, 422, "fence: is missing"),
    ("observe", {"lease_id": "LEASE", "fence": "1"}, 422, "fence: must be a whole number, got 1"),
    ("observe", {"lease_id": "LEASE", "fence": 10**30}, 422, "fence: must be at most"),
    ("act", {**FULL, "turn": None}, 422, "turn: must be a whole number"),
    ("act", {**FULL, "turn": True}, 422, "turn: must be a whole number"),
    ("act", {**FULL, "turn": 0}, 422, "turn: must be at least 1, got 0"),
    ("act", {**FULL, "turn": 2}, 409, "turn 2 is too far: the next is 1"),
    ("act", {**FULL, "name": 1}, 422, "name: must be text, got 1"),
    ("act", {**FULL, "name": "x" * 201}, 422, "name: "),
    ("act", {**FULL, "arguments": []}, 422, "arguments: must be"),
    ("act", {**FULL, "key": "k"}, 422, "key: is not an option"),
    ("act", {**FULL, "fence": 1}, 409, "the fence 1 is not that of the lease"),
]
BAD_BODIES: list[tuple[bytes, int, str]] = [
    (b"", 400, ""),
    (b"{", 400, "the body is not JSON at line 1 column 2"),
    (b'{"id": "\xff"}', 400, "the body is not UTF-8 at byte 8"),
    (b"[" * 10_000, 400, "nested too deeply"),
    (b'{"id": NaN}', 400, "NaN is not a number"),
    (b'{"numbers": [' + b"1e15," * 200_000 + b"1]}", 422, "the body has more than 20,000 values"),
    (b'{"id": 1e999}', 400, "is not a number"),
    (b'{"id": ' + b"9" * 5000 + b"}", 400, "a number of 5000 digits is too long"),
    (b"[]", 422, "the body must be a JSON object"),
    (json.dumps(call("act", {**FULL, "arguments": deep(70)})).encode(), 422, "nested more than 64 deep"),
    (json.dumps(call("act", {**FULL, "arguments": {"text": "\ud83d"}})).encode(), 422, "half of a surrogate pair"),
    (
        json.dumps(call("act", {**FULL, "arguments": {"text": "x" * (1 << 20)}})).encode(),
        413,
        "more than 1,048,576 bytes",
    ),
    (json.dumps(call("fly", {})).encode(), 0, "there is no tool 'fly'"),
    (json.dumps(call("x\n" * 500, {})).encode(), 0, "there is no tool 'x x"),
    (json.dumps(call(1, {})).encode(), 0, ""),
    (json.dumps(call("acquire", [])).encode(), 0, ""),
    (json.dumps(call("acquire", "{}")).encode(), 0, ""),
    (
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///etc"}}).encode(),
        0,
        "",
    ),
    (json.dumps({"jsonrpc": "1.0", "id": 1, "method": "ping"}).encode(), 400, ""),
    (json.dumps({"hello": 1}).encode(), 400, ""),
]
ERAS = {"legacy": {}, "modern": {"MCP-Protocol-Version": "2026-07-28"}}


@pytest.mark.parametrize(("tool", "arguments", "status", "said"), BAD_ARGUMENTS, ids=range(len(BAD_ARGUMENTS)))
def test_bad_arguments_are_one_clear_sentence(
    service: DesktopService,
    token: str,
    kept_lease: dict[str, Any],
    *,
    tool: str,
    arguments: dict[str, Any],
    status: int,
    said: str,
) -> None:
    known = {"LEASE": kept_lease["lease_id"], "FENCE": kept_lease["fence"]}
    meant = {name: known.get(value, value) if isinstance(value, str) else value for name, value in arguments.items()}
    with service.client(token) as client:
        client.post(f"/leases/{kept_lease['lease_id']}/renew", json={"fence": kept_lease["fence"]})
        reply = posted(client, call(tool, meant))
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json"), reply.text
    result = reply.json()["result"]
    assert (result["isError"], result["structuredContent"]["status"]) == (True, status)
    assert said in result["content"][0]["text"]
    assert len(reply.content) < 5_000


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("body", "status", "said"), BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_bad_messages_are_errors_of_json_rpc(
    service: DesktopService, token: str, *, body: bytes, status: int, said: str, era: str
) -> None:
    with service.client(token) as client:
        reply = posted(client, body, **ERAS[era])
    if era == "legacy" or status > 400:
        assert reply.status_code == (status or 200), reply.text
    error = reply.json()["error"]
    if era == "legacy" or status:
        assert said in error["message"]
    assert error["code"] < 0
    assert len(reply.content) < 5_000
    assert "Traceback" not in reply.text
