"""The desktop service under many clients, of which some are killed: what it adds to an act, and whether its promises hold.

A Valkey, a host of simulated desktops and `rollouts desktops serve` run as they would; each process of clients has a token of
its own and is killed as a whole. Clients act once a second while they have a desktop. Prints a table, or figures with ``--json``;
the exit code is 1 if a promise did not hold. Not a test: its times say how fast this machine is today.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import psutil
import typer
from rich.console import Console
from rich.table import Table

from rollout_tasks.embedded.services import EmbeddedServices, WorkerVMs
from rollout_tasks.http_services.token_store import TokenStore
from rollout_tasks.redis_client import connect
from rollout_tasks.service_client import AsyncDesktopClient, DesktopServiceError, QuotaUsedUp
from rollout_tasks.service_client.exchanges import new_key
from vm_pool.pool import VMPool

BACK_AFTER_TTL = 5.0
"""How long after a killed client's time is over its desktop may be on its way back."""
AIM_MS = 5.0
"""The most that the service may add to an act in the 99th percentile."""
OPERATOR = "operator-of-the-bench"
_ACTS = (4, 12)
"""Acts of one lease, at random."""
_ACT_SECONDS = 0.05
_BETWEEN_ACTS = 1.0
_LOOK_SECONDS = 0.25
_START_SECONDS = 120.0


async def _client(client: AsyncDesktopClient, http: httpx.AsyncClient, log: Any, chance: random.Random) -> None:
    """One client: takes desktops for as long as it lives, and notes what it does."""
    await asyncio.sleep(chance.uniform(0, 2))
    while True:
        try:
            async with client.lease() as lease:
                state = lease.state
                named = {"lease": state.lease_id, "vm": state.vm_id, "fence": state.fence}
                _note(log, event="acquired", **named)
                for _ in range(chance.randint(*_ACTS)):
                    began = time.monotonic()
                    body = {"fence": state.fence, "key": new_key(), "name": "work"}
                    reply = await http.post(f"/leases/{state.lease_id}/act", json=body)
                    whole = 1000 * (time.monotonic() - began)
                    reply.raise_for_status()
                    desktop, total = _timings(reply)
                    _note(log, event="acted", added=total - desktop, round_trip=whole - desktop, **named)
                    await asyncio.sleep(max(0.0, _BETWEEN_ACTS - (time.monotonic() - began)))
            _note(log, event="released", **named)
        except QuotaUsedUp:
            _note(log, event="over quota")
            await asyncio.sleep(chance.uniform(0.5, 1.5))
        except (DesktopServiceError, httpx.HTTPError) as error:
            _note(log, event="failed", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(1)


def _note(log: Any, **values: Any) -> None:
    log.write(
        json.dumps({"at": time.monotonic(), **values}) + "\n"
    )  # this clock is the same for all processes of a machine


def _timings(reply: httpx.Response) -> tuple[float, float]:
    """Returns the milliseconds that the desktop took, and the service with it."""
    parts = dict(part.strip().split(";dur=") for part in reply.headers["Server-Timing"].split(","))
    return float(parts["desktop"]), float(parts["total"])


def clients(url: str, token: str, path: Path, connections: int, seed: int, *, give_way: bool) -> None:
    """Runs one process of clients until it is killed."""
    if give_way:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    async def run() -> None:
        limits = httpx.Limits(max_connections=None)
        headers = {"Authorization": f"Bearer {token}"}
        with path.open("a", buffering=1, encoding="utf-8") as log:
            async with (
                AsyncDesktopClient(url, token) as client,
                httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=60) as http,
            ):
                each = [random.Random(f"{seed}/{number}") for number in range(connections)]
                await asyncio.gather(*(_client(client, http, log, chance) for chance in each))

    asyncio.run(run())


@contextmanager
def service(folder: Path, desktops: int, most: int, ttl: float) -> Iterator[tuple[str, int]]:
    """Runs the service over simulated desktops; yields its address and its process."""
    services = EmbeddedServices(folder / "logs")
    try:
        services.start_valkey()
        services.start_vm_host(WorkerVMs(desktops, "simulated", "default", {"reset_seconds": 0.2}))
        with connect(tries=1) as client:
            _wait(lambda: sum(vm.state == "free" for vm in VMPool(client).status().vms) == desktops, "desktops")
        config = folder / "run.json"
        steps = 10_000
        simulated = {"seconds": [_ACT_SECONDS * steps] * 2, "steps": steps}
        config.write_text(json.dumps({"simulated": simulated}), encoding="utf-8")
        command = [sys.executable, "-m", "rollout_tasks.cli.main", "desktops", "serve", "--port", "0", "--no-embedded"]
        command += ["--env-mode", "simulated", "--config", str(config), "--output-dir", str(folder / "results")]
        command += ["--ttl", str(ttl), "--num-rollouts", str(most)]
        environment = {**os.environ, "ROLLOUT_SERVICE_TOKENS": f"boss:{OPERATOR}"}
        log = folder / "service.log"
        with log.open("wb") as said:
            process = subprocess.Popen(command, cwd=folder, stderr=said, env=environment)
            try:
                _wait(
                    lambda: b"Application startup complete" in log.read_bytes() or process.poll() is not None, "service"
                )
                yield _address(log), process.pid
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(_START_SECONDS)
    finally:
        services.stop()


def _address(log: Path) -> str:
    for word in log.read_text(encoding="utf-8").split():
        if word.startswith("http://"):
            return word.rstrip(",")
    raise TimeoutError(f"the service does not start: {log.read_text(encoding='utf-8')[-2000:]}")


def _wait(there: Any, what: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {_START_SECONDS:g} s")
        time.sleep(0.1)


class Watch:
    """Looks at the service and its pool all the time: quotas, and when a killed process's desktops are back."""

    def __init__(self, url: str, quotas: Mapping[str, int], pool: VMPool, pid: int) -> None:
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {OPERATOR}"}, timeout=30)
        self._quotas = quotas
        self._pool = pool
        self._process = psutil.Process(pid)
        self._began = (self._seconds(self._process), time.monotonic())
        self.over_quota: list[str] = []
        self.most: dict[str, int] = defaultdict(int)
        self.waiting = 0

    def cores(self) -> float:
        """Returns how many cores the program that speaks HTTP has used since the watch began, without its sessions."""
        before, began = self._began
        return (self._seconds(self._process) - before) / (time.monotonic() - began)

    @staticmethod
    def _seconds(process: psutil.Process) -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    def look(self) -> set[str]:
        """Returns the leases that hold a desktop or wait for one."""
        for name, use in self._http.get("/tokens").json().items():
            self.most[name] = max(self.most[name], use["current"])
            if use["current"] > self._quotas.get(name, use["current"]):
                self.over_quota.append(f"{name}: {use['current']} of {self._quotas[name]}")
        status = self._pool.status()
        self.waiting = max(self.waiting, len(status.waiters))
        holders = [vm.holder for vm in status.vms if vm.holder] + [one.holder for one in status.waiters]
        return {holder.rpartition(" ")[2] for holder in holders}


def measure(
    processes: int, connections: int, desktops: int, seconds: float, ttl: float, seed: int, *, give_way: bool = False
) -> dict[str, Any]:
    """Runs clients, kills a tenth of their processes (at least one), and returns what was seen."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="desktop-service-") as name:
        folder = Path(name)
        with (
            service(folder, desktops, processes * connections + 8, ttl) as (url, pid),
            connect(tries=1) as client,
        ):
            names = [f"client-{number}" for number in range(processes)]
            quotas = dict.fromkeys(names, connections) | {names[0]: max(1, connections // 4)}
            store = TokenStore(client)
            given = {one: store.make(one, quota) for one, quota in quotas.items()}
            time.sleep(2)  # until the service has read them
            logs = {one: folder / f"{one}.jsonl" for one in names}
            running = {
                one: subprocess.Popen(
                    [sys.executable, __file__, "clients", url, given[one], str(logs[one]), str(connections), str(seed)]
                    + ["--give-way"] * give_way
                )
                for one in names
            }
            watch = Watch(url, quotas, VMPool(client), pid)
            victims = chance.sample(names[1:], max(1, processes // 10))
            kills = sorted((chance.uniform(0.4, 0.8) * seconds, victim) for victim in victims)
            back = _run(watch, running, logs, kills, seconds, ttl + BACK_AFTER_TTL)
            cores = watch.cores()
            for process in running.values():
                process.kill()
                process.wait()
            events = {one: _read(path) for one, path in logs.items()}
    return {"service_cores": round(cores, 3), **_figures(events, watch, quotas, back, ttl + BACK_AFTER_TTL)}


def _run(
    watch: Watch,
    running: Mapping[str, subprocess.Popen[bytes]],
    logs: Mapping[str, Path],
    kills: list[tuple[float, str]],
    seconds: float,
    back_within: float,
) -> dict[str, float | None]:
    """Watches for this long, and longer until all that was killed is back; returns how long that took for each."""
    began = time.monotonic()
    killed: dict[str, tuple[float, set[str]]] = {}
    back: dict[str, float | None] = {}
    while (now := time.monotonic() - began) < seconds or len(back) < len(killed):
        while kills and now >= kills[0][0]:
            _, victim = kills.pop(0)
            running[victim].kill()
            running[victim].wait()
            leases = {one["lease"] for one in _read(logs[victim]) if "lease" in one}
            killed[victim] = (time.monotonic(), leases)
        held = watch.look()
        for victim, (at, leases) in killed.items():
            waited = time.monotonic() - at
            if victim not in back and not (held & leases):
                back[victim] = waited
            elif victim not in back and waited > 4 * back_within:
                back[victim] = None
        time.sleep(_LOOK_SECONDS)
    return back


def _read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # the last one of a killed process
            continue
    return found


def _figures(
    events: Mapping[str, Sequence[Mapping[str, Any]]],
    watch: Watch,
    quotas: Mapping[str, int],
    back: Mapping[str, float | None],
    back_within: float,
) -> dict[str, Any]:
    every = [one for some in events.values() for one in some]
    acts = [one for one in every if one["event"] == "acted"]
    times = [one["at"] for one in acts]
    failed = [one["error"] for one in every if one["event"] == "failed"]
    late = [name for name, seconds in back.items() if seconds is None or seconds > back_within]
    added = sorted(one["added"] for one in acts)
    return {
        "acts": len(acts),
        "acts_per_second": len(acts) / (max(times) - min(times)) if len(times) > 1 else 0.0,
        "leases": sum(one["event"] == "acquired" for one in every),
        "most_waiting": watch.waiting,
        "refused_over_quota": sum(one["event"] == "over quota" for one in every),
        "over_quota": watch.over_quota,
        "most_at_once": {name: most for name, most in watch.most.items() if name in quotas},
        "held_by_two": shared(every),
        "back_seconds": dict(back),
        "back_late": late,
        "failed": len(failed),
        "first_failures": failed[:5],
        "added_ms": _percentiles(added),
        "round_trip_added_ms": _percentiles(sorted(one["round_trip"] for one in acts)),
        "kept": not (watch.over_quota or shared(every) or late or failed) and _percentiles(added)["p99"] < AIM_MS,
    }


def shared(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a sentence for each time that a desktop did something for one lease after another one had it.

    Args:
        events: What clients noted, with the times of one clock.
    """
    latest: dict[str, int] = {}
    found = []
    for one in sorted((one for one in events if one["event"] in ("acquired", "acted")), key=lambda one: one["at"]):
        vm, fence = one["vm"], one["fence"]
        if fence < latest.get(vm, 0):
            found.append(f"{vm}: fence {fence} after {latest[vm]}")
        latest[vm] = max(fence, latest.get(vm, 0))
    return found


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {"p50": float("nan"), "p99": float("nan"), "most": float("nan")}
    return {
        "p50": round(values[len(values) // 2], 3),
        "p99": round(values[min(len(values) - 1, int(0.99 * len(values)))], 3),
        "most": round(values[-1], 3),
    }


application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@application.command("clients", hidden=True)
def _clients(url: str, token: str, log: Path, connections: int, seed: int, give_way: bool = False) -> None:
    """Run one process of clients."""
    clients(url, token, log, connections, seed, give_way=give_way)


@application.command("measure")
def main(
    processes: Annotated[int, typer.Option(min=2, help="Processes of clients.")] = 10,
    connections: Annotated[int, typer.Option(min=1, help="Clients of each.")] = 20,
    desktops: Annotated[int, typer.Option(min=1, help="Simulated desktops.")] = 20,
    seconds: Annotated[float, typer.Option(min=5, help="How long clients work.")] = 90.0,
    ttl: Annotated[
        float, typer.Option(min=1, help="Seconds that a client may be silent; the service's own default.")
    ] = 60.0,
    seed: Annotated[int, typer.Option(help="Same seed, same clients and kills.")] = 0,
    give_way: Annotated[
        bool,
        typer.Option("--give-way", help="Leave clients only what the service does not use, as if they ran elsewhere."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures.")] = False,
) -> None:
    """Measure the service."""
    figures = measure(processes, connections, desktops, seconds, ttl, seed, give_way=give_way)
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
    else:
        table = Table("", "seen", "promised", title=f"{processes} x {connections} clients, {desktops} desktops")
        back = [f"{one:.1f}" if one is not None else "never" for one in figures["back_seconds"].values()]
        table.add_row("acts", f"{figures['acts']} ({figures['acts_per_second']:.1f} a second)", "")
        table.add_row("leases; most that waited", f"{figures['leases']}; {figures['most_waiting']}", "")
        table.add_row("over a quota", str(len(figures["over_quota"])), "0")
        table.add_row("desktops held by two", str(len(figures["held_by_two"])), "0")
        table.add_row("killed clients' desktops back, s", ", ".join(back), f"{ttl + BACK_AFTER_TTL:g}")
        table.add_row("calls that failed", str(figures["failed"]), "0")
        added = figures["added_ms"]
        table.add_row("added to an act, ms (p50, p99, most)", ", ".join(map(str, added.values())), f"p99 < {AIM_MS:g}")
        Console().print(table)
    raise typer.Exit(0 if figures["kept"] else 1)


if __name__ == "__main__":
    application(["measure", *sys.argv[1:]] if sys.argv[1:2] != ["clients"] else sys.argv[1:])
