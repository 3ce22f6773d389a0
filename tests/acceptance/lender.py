"""A machine that lends real desktops: a Valkey, a VM host, and a desktop service that can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.conftest import REPOSITORY, ValkeyServer, free_port
from tests.virtual_machines import wait_until

OPERATOR = "operator-0123456789abcdef"
_COMMAND = (sys.executable, "-m", "rollout_tasks.cli.main")


class Lender:
    """The service, over a pool that outlives it."""

    def __init__(self, folder: Path, num_vms: int) -> None:
        """Starts everything, and waits until the service answers."""
        folder.mkdir()
        self.folder = folder
        self.host_id = f"lender-{os.getpid()}"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "valkey").mkdir()
        self.valkey = ValkeyServer(folder / "valkey", aof=False)
        self.valkey.start()
        host = ["vm-host", f"--num-vms={num_vms}", "--provider=local", f"--host-id={self.host_id}"]
        self._host = self._launched(*host, "--option=profile=core")
        self.start()

    def start(self) -> None:
        """Starts the service, the first time or again."""
        options = ["--provider-name", "local", "--num-rollouts", "8", "--port", str(self.port), "--no-embedded"]
        self._service = self._launched("desktops", "serve", *options)
        wait_until(self._answers, seconds=120)

    def kill(self) -> None:
        """kill -9 of the service alone."""
        self._service.kill()
        self._service.wait()

    def lent(self) -> int:
        """How many desktops are lent."""
        reply = httpx.get(f"{self.url}/emulators", headers={"Authorization": f"Bearer {OPERATOR}"})
        return len(reply.json())

    def stop(self) -> None:
        """Ends everything as a supervisor does."""
        try:
            for process in (self._service, self._host):
                process.send_signal(signal.SIGTERM)
            ends = [process.wait(120) for process in (self._service, self._host)]
        finally:
            self.valkey.kill_at_once()
        assert ends == [0, 0], self.said()

    def said(self) -> str:
        """What it logged."""
        return (self.folder / "log").read_text(encoding="utf-8")

    def _launched(self, *words: str) -> subprocess.Popen[bytes]:
        names = ("OPENAI_", "REDIS_", "ROLLOUT_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        environment |= {"PYTHONPATH": str(REPOSITORY), "REDIS_URL": self.valkey.url}
        environment |= {"ROLLOUT_SERVICE_TOKENS": f"boss:{OPERATOR}"}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*_COMMAND, *words], cwd=self.folder, env=environment, stderr=log, start_new_session=True
            )

    def _answers(self) -> bool:
        assert self._service.poll() is None, self.said()
        try:
            return httpx.get(f"{self.url}/health").status_code == 200
        except httpx.HTTPError:
            return False
