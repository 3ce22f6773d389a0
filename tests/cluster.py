"""Real workers, a real Valkey with AOF and real VM hosts, started as a supervisor would and killed as machines do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from rollout_tasks.cleanup_process import members
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from tests.conftest import REPOSITORY, ValkeyServer
from vm_pool.pool import VMPool

LEASE_TTL = 2.0
VISIBILITY_TIMEOUT = 4.0
RECONCILE_EVERY = 1.0
QUEUES = "rollout.simulated,finalize"
"""A worker that serves the other environments' queues, too, imports what they need, and takes seconds longer to start."""


@dataclass
class Cluster:
    """One broker, some workers and VM hosts, and the environment they share."""

    valkey: ValkeyServer
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    environments: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """What a process has besides the cluster's own, by its name."""
    sessions: list[int] = field(default_factory=list)
    """One for each process that was ever started."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "REDIS_URL": self.valkey.url,
            "ROLLOUT_REDIS_URL": self.valkey.url,
            "ROLLOUT_LEASE_TTL": str(LEASE_TTL),
            "ROLLOUT_VISIBILITY_TIMEOUT": str(VISIBILITY_TIMEOUT),
            "ROLLOUT_RECONCILE_EVERY": str(RECONCILE_EVERY),
        }

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def start(self, name: str, command: list[str], *, folder: Path = REPOSITORY) -> None:
        """Starts a service, of this version or of the one in a folder."""
        self.commands[name] = command
        environment = {**self.environment, **self.environments.get(name, {})}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True
            )
        self.sessions.append(self.processes[name].pid)

    def start_worker(
        self,
        name: str = "worker",
        *,
        concurrency: int = 6,
        queues: str = QUEUES,
        extra: Sequence[str] = (),
        on: Sequence[str] = (),
        folder: Path = REPOSITORY,
    ) -> None:
        """Starts a worker; `on` is a command that runs the one which follows it."""
        command = [*on, sys.executable, "-m", "celery", "-A", "rollout_tasks", "worker"]
        command += [f"--concurrency={concurrency}"]
        command += [f"--hostname={name}@%h", "--loglevel=INFO", "--without-gossip", "--without-mingle"]
        self.start(name, [*command, f"--queues={queues}", *extra], folder=folder)

    def start_vm_host(
        self,
        name: str = "vm_host",
        *,
        num_vms: int = 3,
        provider: str = "simulated",
        options: Mapping[str, object] | None = None,
        folder: Path = REPOSITORY,
    ) -> None:
        command = [
            sys.executable,
            "scripts/vm_host.py",
            f"--num-vms={num_vms}",
            f"--provider={provider}",
            f"--host-id={name}",
        ]
        quick = {"boot_seconds": 0.1, "reset_seconds": 0.1} if provider == "simulated" else {}
        given = {**quick, **(options or {})}
        for key, value in given.items():
            command += ["--option", f"{key}={json.dumps(value)}"]
        self.start(name, command, folder=folder)
        self._wait_for_vms_of(name)

    def _wait_for_vms_of(self, host: str, seconds: float = 30) -> None:
        """Without VMs in their pool, runs are refused."""
        deadline = time.monotonic() + seconds
        with redis.Redis.from_url(self.valkey.url) as client:
            pool = VMPool(client, "default")
            while not any(vm.host == host for vm in pool.status().vms):
                assert time.monotonic() < deadline, f"VM host {host} registered nothing within {seconds} s"
                time.sleep(0.05)
            pool.close()

    def wait_for_worker(self, name: str = "worker", *, seconds: float = 60) -> None:
        """Waits until a worker that was started takes tasks."""
        deadline = time.monotonic() + seconds
        log = self.folder / f"{name}.log"
        while " ready." not in log.read_text():
            assert time.monotonic() < deadline, (
                f"worker {name} is not ready after {seconds} s: {log.read_text()[-2000:]}"
            )
            time.sleep(0.05)

    def restart(self, name: str) -> None:
        self.start(name, self.commands[name])

    def kill_main(self, name: str) -> None:
        """kill -9 of a service's main process."""
        self.processes[name].kill()
        self.processes[name].wait()

    def children(self, name: str = "worker") -> list[psutil.Process]:
        """A worker's prefork children."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.processes[name].pid).children()
        return []

    def stop(self, name: str) -> None:
        process = self.processes.get(name)
        if process is None:
            return
        for member in members(process.pid):
            with contextlib.suppress(psutil.Error):
                member.send_signal(signal.SIGCONT)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(40)
        self.kill(name)

    def kill(self, name: str) -> None:
        """kill -9 of a service with everything that it started; harmless when it has ended."""
        process = self.processes.pop(name)
        for member in members(process.pid):
            with contextlib.suppress(psutil.Error):
                member.kill()
        process.wait()

    def stop_all(self) -> None:
        for name in list(self.processes):
            self.stop(name)
        for leader in self.sessions:  # a killed worker's idle children keep each other's pipes open, and stay
            for orphan in members(leader):
                with contextlib.suppress(psutil.Error):
                    orphan.kill()

    @property
    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.valkey.url, decode_responses=True)

    @property
    def store(self) -> RunStore:
        return RunStore(self.client, silent_seconds=LEASE_TTL)

    @property
    def items_file(self) -> Path:
        return self.folder / "items.jsonl"

    def write_items(self, items: list[dict[str, Any]]) -> None:
        self.items_file.write_text("".join(json.dumps(item) + "\n" for item in items))

    def submit(self, config: dict[str, Any], items: list[dict[str, Any]], *, folder: Path = REPOSITORY) -> Run:
        self.write_items(items)
        resolved = parse_config(
            {"data": {"path": str(self.items_file)}, "output_dir": str(self.results), **config}, where="test"
        )
        file = self.folder / "run.yaml"
        # What is as it is by default is left out: an older version may not know it.
        file.write_text(json.dumps(resolved.model_dump(mode="json", exclude_defaults=True)))
        done = subprocess.run(
            [sys.executable, "scripts/submit.py", "--config", str(file), "--json"],
            env={**self.environment, **self.environments.get("submitter", {})},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return Run(self, json.loads(done.stdout)["run_id"], resolved)


@dataclass
class Run:
    """A submitted run."""

    cluster: Cluster
    run_id: str
    config: RunConfig

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.cluster.results / self.run_id)

    @cached_property
    def _polled(self) -> RunStore:
        """Kept open: a connection for each look would cost more than all else that a test does while it waits."""
        return self.cluster.store

    def progress(self) -> Progress | None:
        with contextlib.suppress(redis.RedisError):
            return self._polled.progress(self.run_id)
        return None

    def wait(self, *, seconds: float, meanwhile: Callable[[Progress], None] | None = None) -> Progress:
        """Waits until the run is over."""
        deadline = time.monotonic() + seconds
        progress = None
        while time.monotonic() < deadline:
            progress = self.progress() or progress
            if progress is not None and progress.state in {"done", "cancelled"}:
                return progress
            if progress is not None and meanwhile is not None:
                meanwhile(progress)
            time.sleep(0.1)
        raise AssertionError(f"run {self.run_id} is not over after {seconds} s: {progress}")

    def wait_for(self, committed: int, *, seconds: float = 60) -> None:
        """Waits until so many rollouts are committed."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            progress = self.progress()
            if progress is not None and progress.committed >= committed:
                return
            time.sleep(0.05)
        raise AssertionError(f"only {progress} after {seconds} s")


@pytest.fixture(name="cluster")
def cluster_fixture(valkey: ValkeyServer, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without any process yet but its broker; what is started in it is stopped."""
    cluster = Cluster(valkey, tmp_path)
    yield cluster
    cluster.stop_all()
