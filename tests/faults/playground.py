"""Everything a play needs, started once and used for many: a server, the desktops, two workers, a VM host, a submitter, proxies."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any

import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError
from redis.retry import Retry

from rollout_tasks.cleanup_process import CleanupProcess
from rollout_tasks.runs.store import RunStore
from tests.cluster import LEASE_TTL
from tests.faults.desk import QUEUE, write_entry_points
from tests.faults.machines import Machines
from tests.faults.points import Director
from tests.faults.processes import Service, Submitter, environment_for, wait_until
from tests.faults.proxy import Proxy
from tests.faults.request import Sender
from tests.faults.server import ForgetfulServer
from vm_pool.errors import PoolError
from vm_pool.pool import VMPool
from vm_pool.states import VMState

VMS = 2
CHILDREN = 2
WORKERS = ("worker-a", "worker-b")
HOST = "host"
ITEMS = [
    {"id": f"item-{number}", "question": "work", "env_config": {"steps": steps, "seconds": seconds}}
    for number, (steps, seconds) in enumerate(((2, 0.15), (2, 0.8), *[(2, 0.15)] * 4))
]
"""One of them lasts long enough for several heartbeats."""
LONGER_ITEMS = [*ITEMS[:1], {**ITEMS[1], "env_config": {"steps": 5, "seconds": 0.9}}, *ITEMS[2:]]
"""The same with one that goes on for longer than a lease lives, where the fault may cost the lease."""


class Playground:
    """One server and the processes around it.

    Args:
        folder: Where logs, results and the server's data go; must not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.results.mkdir(parents=True)
        data = folder / "server"
        data.mkdir()
        self.server = ForgetfulServer(data)
        self.director = Director(self.server)
        self.machines = Machines(VMS)
        self.services: dict[str, Service] = {}
        self.proxies: dict[str, Proxy] = {}
        self.cleanup = CleanupProcess()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        for name, items in (("run", ITEMS), ("longer", LONGER_ITEMS)):
            self.write_run(name, items)

    def write_run(self, name: str, items: Sequence[Mapping[str, Any]], *, max_attempts: int = 4) -> str:
        """Writes a run's items and configuration; returns the configuration's name in the folder."""
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        config = {
            "data": {"path": str(path)},
            "env_mode": "desk",
            "output_dir": str(self.results),
            "max_attempts": max_attempts,
            "vm": {"wait_seconds": 60.0},
        }
        (self.folder / f"{name}.yaml").write_text(json.dumps(config))
        return f"{name}.yaml"

    def start(self) -> None:
        """Starts everything, and waits until it serves.

        Raises:
            RuntimeError: Something did not start in time.
        """
        self.server.begin()
        self._thread.start()
        free = asyncio.Event()
        free.set()
        self._do(self.machines.open())
        extensions = self.folder / "extensions"
        write_entry_points(extensions)
        for name in (*WORKERS, HOST, "submitter"):
            role = "main" if name in WORKERS else name
            self.proxies[name] = Proxy(role, self.server.port, self.director, lambda name=name: self.processes_of(name))
            self._do(self.proxies[name].open(free))
        for name in (*WORKERS, HOST):
            environment = environment_for(self._url(name), extensions)
            log = self.folder / f"{name}.log"
            role = "main" if name in WORKERS else name
            self.services[name] = Service(name, role, self._command(name), environment, log, self.cleanup)
        environment = environment_for(self._url("submitter"), extensions)
        self.submitter = Submitter(environment, self.folder / "submitter.log", self.cleanup)
        if problem := self.wait_until_ready():
            raise RuntimeError(f"{self.folder}: {problem}")

    def _url(self, name: str) -> str:
        return f"redis://:{self.server.password}@127.0.0.1:{self.proxies[name].port}/0"

    def _command(self, name: str) -> list[str]:
        if name == HOST:
            command = [
                sys.executable,
                "scripts/vm_host.py",
                f"--num-vms={VMS}",
                "--provider=desks",
                f"--host-id={HOST}",
            ]
            return [*command, "--option", f"ports={json.dumps(self.machines.ports)}"]
        command = [sys.executable, "-m", "celery", "-A", "rollout_tasks", "worker", f"--concurrency={CHILDREN}"]
        command += [f"--hostname={name}@%h", "--loglevel=INFO", "--without-gossip", "--without-mingle"]
        return [*command, f"--queues={QUEUE},finalize"]

    def processes_of(self, name: str) -> list[tuple[str, int]]:
        """Role and pid of the processes behind a proxy."""
        if name == "submitter":
            return self.submitter.processes
        service = self.services.get(name)
        return service.processes if service is not None else []

    def wait_until_ready(self) -> str:
        """Waits until every service serves; returns what does not, empty when all do."""
        if not wait_until(self.director.serving.is_set):
            return "the server did not come back"
        for name in WORKERS:
            service = self.services[name]
            if not wait_until(
                lambda service=service: " ready." in service.log_text and len(service.children) == CHILDREN
            ):
                return f"{name} is not ready: {service.log_text[-1500:]}"
        if not wait_until(self._vms_free):
            return f"the VMs are not free: {[(vm.vm_id, vm.state) for vm in self.pool.status().vms]}"
        return ""

    def _vms_free(self) -> bool:
        try:
            vms = self.pool.status().vms
        except PoolError:  # a server that is just coming back
            return False
        return [vm.state for vm in vms] == [VMState.FREE] * VMS

    @cached_property
    def client(self) -> redis.Redis:
        """Straight to the server, waiting while it is away."""
        patience = Retry(ConstantBackoff(0.1), 100)
        return redis.Redis.from_url(
            self.server.url,
            decode_responses=True,
            retry=patience,
            retry_on_error=[ConnectionError, TimeoutError, BusyLoadingError],
        )

    @cached_property
    def store(self) -> RunStore:
        """Straight to the server."""
        return RunStore(self.client, silent_seconds=LEASE_TTL)

    @cached_property
    def pool(self) -> VMPool:
        """Straight to the server."""
        return VMPool(self.client, "default")

    # -- connections ------------------------------------------------------------------------------------------------

    def senders(self) -> list[Sender]:
        """The processes that have connections to the server."""
        found = {link.sender for proxy in self.proxies.values() for link in list(proxy.links) if link.sender.pid}
        return sorted(found, key=lambda sender: (sender.role, sender.pid))

    def disturb(self, sender: Sender, *, frozen: bool) -> int:
        """Resets every connection of a process, or lets them swallow everything from here on; returns how many."""
        links = [link for proxy in self.proxies.values() for link in list(proxy.links) if link.sender == sender]

        async def disturb() -> None:
            for link in links:
                if frozen:
                    link.frozen = True
                else:
                    link.abort()

        self._do(disturb())
        return len(links)

    def close_frozen(self) -> None:
        """Resets the connections that are frozen still, as those of a process that has nothing to say."""
        links = [link for proxy in self.proxies.values() for link in list(proxy.links) if link.frozen]

        async def close() -> None:
            for link in links:
                link.abort()

        self._do(close())

    def forget_runs(self) -> None:
        """Removes what earlier plays left in the server."""
        client = self.client
        for pattern in ("{run:*", "celery-task-meta-*", "{pool:default}:events"):
            for key in client.scan_iter(pattern, count=1000):
                client.delete(key)

    def keep(self, play: str, folder: Path) -> None:
        """Copies logs and files of a play."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.folder.glob("*.log"):
            shutil.copy(file, folder)
        for run in self.results.glob(f"{play}*"):
            shutil.copytree(run, folder / run.name, dirs_exist_ok=True)
        touches = (f"{touch.at:.3f} {touch.vm} {touch.what} {touch.who}\n" for touch in self.machines.touches)
        (folder / "touches.txt").write_text("".join(touches))

    def end(self) -> None:
        """Ends everything."""
        for service in self.services.values():
            service.pause_supervision()
        for service in self.services.values():
            service.end()
        if hasattr(self, "submitter"):
            self.submitter.end()
        for proxy in self.proxies.values():
            self._do(proxy.close())
        self._do(self.machines.close())
        self.server.end()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self.cleanup.dismiss(10)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(30)
