"""`rollouts desktops serve` as its own program over a Valkey and a pool of simulated desktops, for tests of its clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from rollout_tasks.http_services.token_store import TokenStore
from rollout_tasks.redis_client import connect
from tests.conftest import REPOSITORY, ValkeyServer, free_port
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool
from vm_pool.states import VMState

OPERATOR = "operator-0123456789abcdef"
LEASE_TTL = 2.0
VMS = ("vm-1", "vm-2")
PORTS = {"control": 5001, "chromium": 9222, "vnc": 8006, "vlc": 8080}
ITEMS = [{"id": name, "question": f"Do the work of {name}."} for name in ("one", "two")]


class DesktopService:
    """The command."""

    def __init__(self, valkey: ValkeyServer, folder: Path, *options: str, ttl: float = 20.0) -> None:
        """Starts it and waits until it serves."""
        self.valkey = valkey
        self.folder = folder
        self.records = folder / "results" / "leases"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        items = folder / "items.jsonl"
        items.write_text("".join(json.dumps(item) + "\n" for item in ITEMS), encoding="utf-8")
        config = folder / "run.json"
        config.write_text(json.dumps({"simulated": {"seconds": [0, 0], "steps": 3}}), encoding="utf-8")
        self._command = [sys.executable, "-m", "rollout_tasks.cli.main", "desktops", "serve", "--port", str(self.port)]
        self._command += ["--config", str(config), "--data-path", str(items), "--env-mode", "simulated"]
        self._command += ["--output-dir", str(folder / "results"), "--ttl", str(ttl), "--num-rollouts", "8", *options]
        self.start()

    def environment(self) -> dict[str, str]:
        """The variables of its commands."""
        names = ("OPENAI_", "REDIS_", "ROLLOUT_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        own = {"ROLLOUT_REDIS_URL": self.valkey.url, "ROLLOUT_LEASE_TTL": str(LEASE_TTL)}
        return {**kept, "PYTHONPATH": str(REPOSITORY), "ROLLOUT_SERVICE_TOKENS": f"boss:{OPERATOR}", **own}

    def start(self) -> None:
        """Starts it, the first time or again."""
        self.log = (self.folder / "service.log").open("ab")
        self.process = subprocess.Popen(self._command, cwd=self.folder, env=self.environment(), stderr=self.log)
        wait_until(self._answers, seconds=60)

    @property
    def tokens(self) -> TokenStore:
        """The store of its tokens."""
        return TokenStore(connect(tries=1, url=self.valkey.url))

    def token(self, name: str, quota: int) -> str:
        """Makes a token, and waits until the service knows it."""
        made = self.tokens.make(name, quota)
        with self.client(made) as client:
            wait_until(lambda: client.get("/leases").status_code == 200, seconds=10)
        return made

    def client(self, token: str = OPERATOR) -> httpx.Client:
        """A plain client of HTTP with a token."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def kill(self) -> None:
        """kill -9 of the program alone."""
        self.process.kill()
        self.process.wait()
        self.log.close()

    def stop(self) -> None:
        """Ends it as a supervisor does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(100)
        self.log.close()

    def said(self) -> str:
        """Its log."""
        return (self.folder / "service.log").read_text(encoding="utf-8")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.said()
        try:
            return httpx.get(f"{self.url}/health").status_code == 200
        except httpx.HTTPError:
            return False


def all_free(pool: VMPool) -> bool:
    return [vm.state for vm in pool.status().vms] == [VMState.FREE] * len(VMS)


def acquired(client: httpx.Client, **body: Any) -> dict[str, Any]:
    """A lease that is ready."""
    reply = client.post("/leases", json={"wait_seconds": 20, **body})
    assert reply.status_code in (201, 202), reply.text
    lease: dict[str, Any] = reply.json()
    while lease["state"] in ("waiting", "setting_up"):
        lease = client.get(f"/leases/{lease['lease_id']}", params={"wait_seconds": 20}).json()
    assert lease["state"] == "ready", lease
    return lease


def act(client: httpx.Client, lease: dict[str, Any], key: str, **changes: Any) -> httpx.Response:
    body = {"fence": lease["fence"], "key": key, "name": "work", "arguments": {}, **changes}
    return client.post(f"/leases/{lease['lease_id']}/act", json=body)
