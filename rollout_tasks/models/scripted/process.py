"""The scripted model as a child process of a Python program."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Self

from rollout_tasks.errors import ServiceEnded, UserError
from rollout_tasks.models.scripted import API_KEY_VARIABLE

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0


class ScriptedModelProcess:
    """The process, as a context manager; it also ends if this process is killed."""

    def __init__(
        self,
        data_path: Path,
        *,
        script_file: Path | None = None,
        corrupt: int = 0,
        seed: int = 0,
        faults: Path | None = None,
        latency: float = 0.0,
        skip_invalid: bool = False,
        api_key: str | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            data_path: The benchmark, as for `benchmark.items.load_items`.
            script_file: Scripts by item id, in place of the items' own.
            corrupt: Items that get a wrong final answer.
            seed: Decides which those are, and which requests fail by faults with a rate.
            faults: A file with fault rules.
            latency: The least seconds that a reply takes.
            skip_invalid: Leave out items that cannot be read.
            api_key: The key that clients must send; None for no key. Passed in the child's environment.
        """
        options = {
            "--data-path": data_path,
            "--script-file": script_file,
            "--corrupt": corrupt,
            "--seed": seed,
            "--faults": faults,
            "--latency": latency,
            "--exit-with-parent": os.getpid(),
        }
        given = [text for name, value in options.items() if value is not None for text in (name, str(value))]
        flags = ["--json", *(["--skip-invalid"] if skip_invalid else [])]
        self._command = [sys.executable, "-P", "-m", "rollout_tasks.models.scripted", *given, *flags]
        self._api_key = api_key
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None
        self.url = ""
        """The base URL for clients, ``http://127.0.0.1:<port>/v1``, once started."""

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> str:
        """Starts the server and waits until it listens.

        Returns:
            Its base URL.

        Raises:
            UserError: It refused its files, or did not listen within 60 s.
        """
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        environment = {name: value for name, value in os.environ.items() if name != API_KEY_VARIABLE}
        if self._api_key:
            environment[API_KEY_VARIABLE] = self._api_key
        self._process = subprocess.Popen(  # noqa: S603 - this program, with options of this program
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
            start_new_session=True,
        )
        try:
            self.url = self._announced(self._process)
        except BaseException:
            self.stop()
            raise
        return self.url

    def check(self) -> None:
        """Checks that the server still runs.

        Raises:
            ServiceEnded: It has ended by itself.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            raise ServiceEnded(f"the scripted model ended by itself (exit code {code})")

    def stop(self) -> None:
        """Ends the server, in under a second unless the machine is very busy. Harmless when repeated."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        if self._complaints is not None:
            self._complaints.close()
            self._complaints = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _announced(self, process: subprocess.Popen[bytes]) -> str:
        """Returns the URL in the line that the child prints once it listens."""
        assert process.stdout is not None  # noqa: S101 - opened as a pipe above
        line = b""
        deadline = time.monotonic() + _START_SECONDS
        while not line.endswith(b"\n"):
            if not select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise UserError(f"the scripted model did not listen within {_START_SECONDS:.0f} s")
            part = os.read(process.stdout.fileno(), 4096)
            if not part:
                raise UserError(self._last_complaint(process.wait(_STOP_SECONDS)))
            line += part
        return str(json.loads(line)["url"])

    def _last_complaint(self, exit_code: int) -> str:
        assert self._complaints is not None  # noqa: S101 - opened before the child started
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the scripted model ended with exit code {exit_code} before it listened"
