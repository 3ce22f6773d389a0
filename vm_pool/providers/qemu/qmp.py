"""A client of QEMU's machine protocol (QMP). Every call has a deadline; it notices at once when QEMU ends."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class QMPError(RuntimeError):
    """QEMU refused a command, did not answer in time, or has ended."""


class QMP:
    """A connection to one QEMU.

    Args:
        connection: The other end of the socket of QEMU's monitor.
        name: The machine's name in messages.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        self._connection = connection
        self._name = name
        self._received = bytearray()
        self._events: deque[dict[str, Any]] = deque()
        self._one_at_a_time = threading.Lock()
        self._sent = 0

    def begin(self, seconds: float) -> None:
        """Waits for QEMU's greeting and answers it.

        Raises:
            QMPError: No greeting comes.
        """
        deadline = time.monotonic() + seconds
        self._read(deadline, "start")
        self.execute("qmp_capabilities", seconds=seconds)

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None, *, seconds: float) -> Any:
        """Runs a command; returns its result.

        Raises:
            QMPError: It failed, or did not end in time.
        """
        deadline = time.monotonic() + seconds
        with self._one_at_a_time:
            return self._execute(command, arguments or {}, deadline)

    def run_job(self, command: str, arguments: Mapping[str, Any], *, seconds: float) -> None:
        """Starts a job and waits for its end.

        Raises:
            QMPError: It failed, or did not end in time.
        """
        deadline = time.monotonic() + seconds
        with self._one_at_a_time:
            self._events.clear()
            job = f"job-{self._sent}"
            self._execute(command, {"job-id": job, **arguments}, deadline)
            while not self._concluded(job, deadline, command):
                pass
            jobs = self._execute("query-jobs", {}, deadline)
            error = next((one.get("error") for one in jobs if one["id"] == job), None)
            self._execute("job-dismiss", {"id": job}, deadline)
        if error is not None:
            raise QMPError(f"{self._name}: {command}: {error}")

    def wait_for_end(self, seconds: float) -> None:
        """Waits until QEMU has ended.

        Raises:
            QMPError: It has not ended in time.
        """
        deadline = time.monotonic() + seconds
        with self._one_at_a_time:
            while (left := deadline - time.monotonic()) > 0:
                self._connection.settimeout(left)
                try:
                    if not self._connection.recv(1 << 16):
                        return
                except ConnectionResetError:
                    return
                except TimeoutError:
                    break
        raise QMPError(f"{self._name}: QEMU does not end within {seconds:.0f} s")

    def close(self) -> None:
        """Closes the connection; a call that waits in another thread raises."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _execute(self, command: str, arguments: Mapping[str, Any], deadline: float) -> Any:
        self._sent += 1
        number = self._sent
        try:
            self._connection.settimeout(max(deadline - time.monotonic(), 0.001))
            self._connection.sendall(
                json.dumps({"execute": command, "arguments": arguments, "id": number}).encode() + b"\n"
            )
        except OSError as error:
            raise QMPError(f"{self._name}: {command}: QEMU has ended") from error
        while True:
            said = self._read(deadline, command)
            if "event" in said:
                self._events.append(said)
            elif said.get("id") == number:  # otherwise it answers a call that was given up
                if "error" in said:
                    raise QMPError(f"{self._name}: {command}: {said['error'].get('desc', said['error'])}")
                return said["return"]

    def _concluded(self, job: str, deadline: float, command: str) -> bool:
        event = self._events.popleft() if self._events else self._read(deadline, command)
        data = event.get("data", {})
        return event.get("event") == "JOB_STATUS_CHANGE" and data.get("id") == job and data.get("status") == "concluded"

    def _read(self, deadline: float, command: str) -> dict[str, Any]:
        """Returns the next message of any kind."""
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0:
                raise QMPError(f"{self._name}: {command}: QEMU does not answer")
            try:
                self._connection.settimeout(left)
                data = self._connection.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            if not data:
                raise QMPError(f"{self._name}: {command}: QEMU has ended")
            self._received += data
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        said: dict[str, Any] = json.loads(line)
        return said
