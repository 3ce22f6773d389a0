"""The lives of leases that meet faults: what a client does from its first call to its last, and what it was told."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from rollout_tasks.service_client import DesktopClient, DesktopServiceError, LeaseState
from tests.integration.service.desktop_service import OPERATOR
from vm_pool.providers import load_provider
from vm_pool.providers.base import Provider

PATIENCE = 25.0
ACTS = 2
_WAITS_SECONDS = 0.3
_MCP = {"accept": "application/json, text/event-stream"}


@dataclass
class Life:
    """What became of one lease, as its client knows it."""

    lease_id: str = ""
    fence: int | None = None
    turns: list[int] = field(default_factory=list)
    """Of the acts that were answered."""
    asked: int = 0
    """Acts that were sent."""
    score: float | None = None
    evaluated: bool = False
    released: bool = False
    refused: str = ""
    """The sentence that ended it; empty if it went well."""
    status: int | None = None
    broke: str = ""
    """What was no clear answer."""
    seconds: float = 0.0

    @property
    def went_well(self) -> bool:
        """Whether all calls were answered as they were meant."""
        return not self.refused and not self.broke


def _played(url: str, life: Life, *, evaluates: bool) -> None:
    """Acquire, observe, act, act, evaluate or release."""

    def noted(state: LeaseState) -> None:
        life.lease_id = state.lease_id

    with DesktopClient(url, OPERATOR, patience=PATIENCE) as client:
        lease = client.acquire(item="one", timeout=PATIENCE, while_waiting=noted)
        life.lease_id, life.fence = lease.state.lease_id, lease.state.fence
        try:
            lease.observe()
            for _ in range(ACTS):
                life.asked += 1
                life.turns.append(lease.act("work").turn)
            if evaluates:
                outcome = lease.evaluate(timeout=PATIENCE)
                life.score, life.evaluated = outcome.score, not outcome.failure_class
                if outcome.failure_class:
                    life.refused = outcome.error
        finally:
            lease.release()
            life.released = True


def evaluated(url: str, life: Life) -> None:
    """A lease with an item that is evaluated."""
    _played(url, life, evaluates=True)


def released(url: str, life: Life) -> None:
    """A lease that is given back in the middle of its episode."""
    _played(url, life, evaluates=False)


def waiting(url: str, life: Life) -> None:
    """A lease that waits until its client gives another one back."""

    def noted(state: LeaseState) -> None:
        life.lease_id = state.lease_id

    with DesktopClient(url, OPERATOR, patience=PATIENCE) as client, ThreadPoolExecutor(1) as threads:
        first = client.acquire(item="two", timeout=PATIENCE)
        try:
            waits = threads.submit(client.acquire, item="one", timeout=PATIENCE, while_waiting=noted)
            wait([waits], timeout=_WAITS_SECONDS)
        finally:
            first.release()
        lease = waits.result()
        life.lease_id, life.fence = lease.state.lease_id, lease.state.fence
        try:
            life.asked += 1
            life.turns.append(lease.act("work").turn)
        finally:
            lease.release()
            life.released = True


def emulator(url: str, life: Life) -> None:
    """A desktop of the older routes: start, status, stop."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {OPERATOR}"}, timeout=PATIENCE) as client:
        started = _answered(client, "POST", "/start_emulator")
        if started.status_code != 200:
            life.refused, life.status = started.json()["message"], started.status_code
            return
        life.lease_id = started.json()["data"]["emulator_id"]
        status = _answered(client, "GET", f"/emulator_status/{life.lease_id}")
        stopped = _answered(client, "POST", "/stop_emulator", {"emulator_id": life.lease_id})
        for reply in (status, stopped):
            if reply.status_code != 200:
                life.refused, life.status = reply.json()["message"], reply.status_code
        life.released = stopped.status_code == 200


def _answered(client: httpx.Client, method: str, path: str, body: Any = None, headers: Any = None) -> httpx.Response:
    """Asks again while the service is away, as the older clients do not."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return client.request(method, path, json=body, headers=headers)
        except httpx.TransportError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def lent_vm(url: str, life: Life) -> None:
    """A VM of the provider `remote`, as its host has it: booted, reset and stopped; what fails is tried again."""
    provider = load_provider("remote", {"url": url, "start_seconds": PATIENCE, "call_seconds": PATIENCE})

    def boot(vm_id: str) -> None:
        provider.stop(vm_id)  # what a failed boot or reset left
        provider.boot(vm_id)

    steps: tuple[Callable[[str], object], ...] = (boot, provider.reset)
    done = 0
    until = time.monotonic() + PATIENCE
    try:
        while done < len(steps) and time.monotonic() < until:
            try:
                steps[done]("far-1")
                done += 1
            except RuntimeError as error:
                life.refused = str(error)
                time.sleep(0.2)
                done = 0
    finally:
        life.released = _stopped(provider)
    if done == len(steps) and life.released:
        life.refused = ""


def _stopped(provider: Provider) -> bool:
    """Stops the VM as a host does, which tries again."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            provider.stop("far-1")
        except RuntimeError:
            time.sleep(0.2)
        else:
            return True
    return False


def mcp_client(url: str, life: Life) -> None:
    """Tools of MCP, without its sessions: acquire, act, act, evaluate."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {OPERATOR}"}, timeout=PATIENCE) as client:

        def call(tool: str, **arguments: Any) -> dict[str, Any]:
            said = {"name": tool, "arguments": arguments}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": said}
            result: dict[str, Any] = _answered(client, "POST", "/mcp", body, _MCP).json()["result"]
            text = result["content"][0]["text"]
            if result.get("isError"):
                raise DesktopServiceError(text, result["structuredContent"]["status"])
            facts: dict[str, Any] = json.loads(text)
            return facts

        lease = call("acquire", item="one", key=uuid.uuid4().hex)
        while lease["state"] in ("waiting", "setting_up"):
            lease = call("show_lease", lease_id=lease["lease_id"])
        life.lease_id, life.fence = lease["lease_id"], lease["fence"]
        if lease["state"] == "ended":
            life.refused = lease["end"]["error"]
            return
        named = {"lease_id": life.lease_id, "fence": life.fence}
        try:
            for turn in range(1, ACTS + 1):
                life.asked += 1
                call("act", **named, turn=turn, name="work")
                life.turns.append(turn)
            end = call("evaluate", **named)
            while not end["evaluated"]:
                end = call("evaluate", **named)
            life.score, life.evaluated = end["score"], not end["failure_class"]
            life.refused = end["error"]
        finally:
            with suppress(DesktopServiceError):
                call("release", lease_id=life.lease_id)


LIVES: dict[str, Callable[[str, Life], None]] = {
    "evaluated": evaluated,
    "released": released,
    "waiting": waiting,
    "emulator": emulator,
    "lent VM": lent_vm,
    "MCP client": mcp_client,
}


def lived(name: str, url: str, life: Life) -> None:
    """Lives one life; notes how it ended."""
    began = time.monotonic()
    try:
        LIVES[name](url, life)
    except DesktopServiceError as error:
        life.refused, life.status = str(error), error.status
    except Exception as error:  # noqa: BLE001 (whatever else a client is told is a finding)
        life.broke = f"{type(error).__name__}: {error}"
    finally:
        life.seconds = time.monotonic() - began
