"""Clients that vanish or half-close at each point of each call; afterwards the call is repeated by one who stays."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from rollout_tasks.trajectories.writer import RECORD_NAME
from tests.faults.desktop_service.ground import Ground
from tests.faults.desktop_service.plays import after
from tests.integration.service.desktop_service import OPERATOR, acquired

RESET, HALF_CLOSED = "reset", "half-closed"
CUTS = (
    "before the request",
    "in its head",
    "after its head",
    "in its body",
    "after the request",
    "in the answer",
)
_ANSWER_SECONDS = 15.0
_MCP = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client; ``{lease}`` stands for the lease's path."""

    name: str
    method: str
    path: str
    body: Mapping[str, Any] | None
    repeated: tuple[int, ...]
    """What the same call may be answered when it is repeated."""
    needs_lease: bool = True
    headers: tuple[tuple[str, str], ...] = ()


def _tool(tool: str, /, **arguments: Any) -> Mapping[str, Any]:
    call = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}


CALLS = (
    Call(
        "acquire", "POST", "/leases", {"item": "one", "key": "{key}", "wait_seconds": 20}, (201, 202), needs_lease=False
    ),
    Call("wait", "GET", "{lease}?wait_seconds=20", None, (200,)),
    Call("renew", "POST", "{lease}/renew", {"fence": "{fence}"}, (200,)),
    Call("observe", "GET", "{lease}/observe?fence={fence}", None, (200,)),
    Call("act", "POST", "{lease}/act", {"fence": "{fence}", "key": "k", "name": "work", "arguments": {}}, (200,)),
    Call("evaluate", "POST", "{lease}/evaluate", {"fence": "{fence}", "wait_seconds": 20}, (200,)),
    Call("release", "DELETE", "{lease}", None, (200,)),
    Call("view", "POST", "{lease}/view", {"fence": "{fence}", "help": False}, (201, 501)),
    Call("start", "POST", "/start_emulator", {}, (200,), needs_lease=False),
    Call(
        "MCP act",
        "POST",
        "/mcp",
        _tool("act", lease_id="{id}", fence="{fence}", turn=1, name="work"),
        (200, 501),
        headers=tuple(_MCP.items()),
    ),
)


def vanished(ground: Ground, call: Call, cut: str, manner: str) -> list[str]:
    """Plays once; returns what was wrong."""
    ground.arm()
    found: list[str] = []
    with ground.service.client() as boss:
        lease = acquired(boss, item="one") if call.needs_lease else {}
        key = f"{time.monotonic_ns()}"
        values = {"key": key, "fence": lease.get("fence"), "id": lease.get("lease_id", "")}
        path = call.path.replace("{lease}", f"/leases/{values['id']}").replace("{fence}", str(values["fence"]))
        body = _filled(call.body, values)
        answer = _cut_off(ground, call, path, body, cut, manner)
        if manner == HALF_CLOSED and answer is None:
            found.append(f"a client that half-closed was neither answered nor cut off within {_ANSWER_SECONDS:g} s")
        reply = boss.request(call.method, path, json=body, headers=dict(call.headers))
        if reply.status_code not in call.repeated:
            found.append(f"repeated, it is told {reply.status_code} {reply.text[:300]}")
        found += _acts(ground, call, boss, lease)
        _released(boss, reply)
        if lease:
            boss.delete(f"/leases/{lease['lease_id']}")
        _stop_emulators(boss, reply, lost=cut == "in the answer")
    return found + after(ground)


def _filled(body: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(body, Mapping):
        return {name: _filled(value, values) for name, value in body.items()}
    return values.get(body[1:-1], body) if isinstance(body, str) and body.startswith("{") else body


def _cut_off(ground: Ground, call: Call, path: str, body: Any, cut: str, manner: str) -> bytes | None:
    """Sends a part of a request, and vanishes; returns what a client that half-closed got until the end, None if that hangs."""
    content = b"" if body is None else json.dumps(body).encode()
    headers = {
        "host": "a",
        "authorization": f"Bearer {OPERATOR}",
        "content-length": str(len(content)),
        **dict(call.headers),
    }
    head = f"{call.method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    whole = head.encode() + b"\r\n" + content
    sizes = {CUTS[0]: 0, CUTS[1]: len(head) // 2, CUTS[2]: len(head) + 2, CUTS[3]: len(head) + 2 + len(content) // 2}
    with socket.create_connection(("127.0.0.1", ground.service.port), timeout=_ANSWER_SECONDS) as connection:
        connection.sendall(whole[: sizes.get(cut, len(whole))])
        if cut == CUTS[5]:
            connection.recv(1)
        if manner == RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := connection.recv(1 << 16):
                answer += piece
        except TimeoutError:
            return None
        except ConnectionError:
            return answer
        return answer


def _acts(ground: Ground, call: Call, boss: httpx.Client, lease: Mapping[str, Any]) -> list[str]:
    """Acts of the call that were carried out more than once."""
    if not call.name.endswith("act"):
        return []
    record = ground.service.records / lease["lease_id"] / RECORD_NAME
    steps = sum(
        '"kind": "step"' in line or '"kind":"step"' in line for line in record.read_text(encoding="utf-8").splitlines()
    )
    del boss
    return [] if steps <= 1 else [f"the act was carried out {steps} times"]


def _released(boss: httpx.Client, reply: httpx.Response) -> None:
    with suppress(ValueError, KeyError, TypeError):
        boss.delete(f"/leases/{reply.json()['lease_id']}")


def _stop_emulators(boss: httpx.Client, reply: httpx.Response, *, lost: bool) -> None:
    """Stops the emulator that was started; and the one whose answer was lost, which nobody else does before its time."""
    with suppress(ValueError, KeyError, TypeError):
        boss.post("/stop_emulator", json={"emulator_id": reply.json()["data"]["emulator_id"]})
    if lost:
        for one in boss.get("/emulators").json():
            boss.post("/stop_emulator", json={"emulator_id": one["emulator_id"]})


__all__ = ["CALLS", "CUTS", "HALF_CLOSED", "RESET", "vanished"]
