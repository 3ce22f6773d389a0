"""A desktop service with two desktops, whose processes can meet faults, and a supervisor that starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import psutil

from rollout_tasks.redis_client import connect
from tests.conftest import REPOSITORY, ValkeyServer
from tests.faults.desktop_service.injection import CODE, VARIABLE
from tests.faults.kinds import Kind
from tests.faults.proxy import Proxy
from tests.faults.request import Request, Sender
from tests.integration.service.desktop_service import VMS, DesktopService
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint

TTL = 6.0
"""How long a client may be silent."""
LEASE_TTL = 4.0
STOPPED_SECONDS = LEASE_TTL + 0.7
REFUSED_SECONDS = 1.0
REFUSED, STOPPED = "refused", "stopped"
"""Faults of requests beside `Kind`: Redis takes no connections for a while; the sender is stopped for longer than its lease."""


class Director:
    """Counts requests to Redis, and lets the armed one meet its fault."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.counts: Counter[tuple[str, str]] = Counter()
        self.armed: tuple[str, str, int, str] | None = None
        """Role, name, number and kind."""

    def asked(self, request: Request) -> Kind | None:
        """See `Decides`."""
        role = request.sender.role
        self.counts[role, request.name] += 1
        if self.armed is None or self.armed[:3] != (role, request.name, self.counts[role, request.name]):
            return None
        kind, self.armed = self.armed[3], None
        self._ground.met.set()
        if kind == REFUSED:
            self._ground.refuse()
            return Kind.RESET
        if kind == STOPPED:
            with contextlib.suppress(ProcessLookupError):
                os.kill(request.sender.pid, signal.SIGSTOP)
            return None
        return Kind(kind)

    def answered(self, request: Request) -> Kind | None:
        """See `Decides`."""
        del request
        return None

    async def server_killed(self, *, lose_last_second: bool) -> None:
        """Is not asked for here."""
        raise NotImplementedError

    def killed(self, sender: Sender) -> None:
        """See `Decides`."""
        with contextlib.suppress(ProcessLookupError):
            if sender.pid:
                os.kill(sender.pid, signal.SIGKILL)

    def memory(self, *, full: bool) -> None:
        """Is not asked for here."""
        raise NotImplementedError


class _Service(DesktopService):
    """The service with faults in it."""

    def __init__(self, valkey: ValkeyServer, folder: Path, redis_url: str, faults: Path) -> None:
        self._own = {"ROLLOUT_REDIS_URL": redis_url, VARIABLE: str(faults), "ROLLOUT_LEASE_TTL": str(LEASE_TTL)}
        self._first = faults / "first"
        self._first.mkdir(parents=True)
        (self._first / "sitecustomize.py").write_text(CODE, encoding="utf-8")
        super().__init__(valkey, folder, ttl=TTL)

    def start(self) -> None:
        """Starts it; one that does not serve in time is not left."""
        try:
            super().start()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self._own, "PYTHONPATH": f"{self._first}{os.pathsep}{REPOSITORY}"}


class Ground:
    """The service, its Redis behind a proxy, and the pool of its desktops."""

    def __init__(self, folder: Path) -> None:
        """Starts everything."""
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True)
        self.met = threading.Event()
        """Set once a request to Redis has met its fault."""
        self._plays = 0
        self.was_met = False
        """Whether the fault of the last play has happened."""
        self.arm()
        self.valkey = ValkeyServer(folder / "valkey", aof=False)
        (folder / "valkey").mkdir()
        self.valkey.start()
        self._redis = connect(tries=1, url=self.valkey.url)
        self.pool = VMPool(self._redis)
        for vm_id in VMS:
            self.pool.register(vm_id, Endpoint("127.0.0.1", {"control": 5001, "vnc": 8006}))
        self.director = Director(self)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True).start()
        self._free = asyncio.Event()
        self._free.set()
        self.proxy = Proxy("service", self.valkey.port, self.director, self._processes)
        self._do(self.proxy.open(self._free))
        url = self.valkey.url.replace(f":{self.valkey.port}", f":{self.proxy.port}")
        (folder / "service").mkdir()
        self.service: DesktopService
        try:
            self.service = _Service(self.valkey, folder / "service", url, self.faults)
        except BaseException:
            self._end_redis()
            raise

    def _processes(self) -> list[tuple[str, int]]:
        if not hasattr(self, "service"):
            return []
        spawners = _children_of(self.service.process.pid)
        sessions = [pid for spawner in spawners for pid in _children_of(spawner)]
        found = [("service", self.service.process.pid), *(("spawner", pid) for pid in spawners)]
        return [*found, *(("session", pid) for pid in sessions)]

    def arm(self, **fault: Any) -> str:
        """Begins a play with one fault, or none; returns its name."""
        self._plays += 1
        self.met.clear()
        new = self.faults / "armed.new"
        armed = {"play": str(self._plays), "processes": len(self.pids()), **fault}
        new.write_text(json.dumps(armed), encoding="utf-8")
        new.rename(self.faults / "armed.json")
        return str(self._plays)

    def met_in(self, play: str) -> bool:
        """Whether the fault has happened."""
        return self.met.is_set() or (self.faults / f"met-{play}").exists()

    def passed(self, play: str) -> list[tuple[str, str, int]]:
        """The points that were passed in a play: role, name and number."""
        lines = (self.faults / "passed").read_text(encoding="utf-8").splitlines()
        return [(role, point, number) for of, role, point, number in map(json.loads, lines) if of == play]

    def _latest(self) -> list[int]:
        """The processes that a fault may have stopped, without a look at all of the machine's, as that is done all the time."""
        pids = self.pids()
        latest = dict(pids)  # of each role
        return [*latest.values(), *(pid for _, pid in pids[-6:])]

    def pids(self) -> list[tuple[str, int]]:
        """Role and pid of every process there was."""
        noted = self.faults / "pids"
        lines = noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    def refuse(self) -> None:
        """Takes no connections to Redis for a while; called in the loop of the proxy."""

        async def refuse() -> None:
            await self.proxy.close()
            await asyncio.sleep(REFUSED_SECONDS)
            await self.proxy.open(self._free)

        self._refusing = self._loop.create_task(refuse())

    def wake(self) -> None:
        """Lets stopped processes go on."""
        for _, pid in self.pids():
            if _is_stopped(pid) and self._is_own(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def supervise(self, work: threading.Thread, seconds: float) -> bool:
        """Starts the service again and wakes who is stopped, until some work is done; returns whether it was, in time."""
        deadline = time.monotonic() + seconds
        stopped_at: float | None = None
        while work.is_alive() and time.monotonic() < deadline:
            work.join(0.05)
            self.revive()
            stopped = any(_is_stopped(pid) for pid in self._latest())
            stopped_at = (stopped_at or time.monotonic()) if stopped else None
            if stopped_at is not None and time.monotonic() - stopped_at > STOPPED_SECONDS:
                self.wake()
        self.revive()
        self.wake()
        return not work.is_alive()

    def revive(self) -> None:
        """Starts the service again if it was killed."""
        if self.service.process.poll() is not None:
            self.service.log.close()
            self.service.start()

    def left(self) -> list[str]:
        """The sessions' processes, and spawners of earlier services, that are still there."""
        own = [pid for pid in _children_of(self.service.process.pid) if pid]
        latest = {pid: role for role, pid in self.pids()}  # numbers are given again
        others = [(role, pid) for pid, role in latest.items() if role != "service" and pid not in own]
        return [f"{role} {pid}" for role, pid in others if self._is_own(pid)]

    def _is_own(self, pid: int) -> bool:
        """Whether a process is the service's, and none that got the number of one that has ended."""
        try:
            process = psutil.Process(pid)
            lives = process.status() != psutil.STATUS_ZOMBIE
            return lives and process.environ().get(VARIABLE) == str(self.faults)
        except psutil.Error:
            return False

    def end(self) -> None:
        """Ends everything."""
        self.wake()
        self.service.stop()
        self._end_redis()

    def _end_redis(self) -> None:
        self._do(self.proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.pool.close()
        self.valkey.kill_at_once()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


def _children_of(pid: int) -> list[int]:
    """Also those that other threads than the main one started."""
    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


@contextlib.contextmanager
def ground_in(folder: Path) -> Iterator[Ground]:
    """Gives one while the context lasts."""
    ground = Ground(folder)
    try:
        yield ground
    finally:
        ground.end()
