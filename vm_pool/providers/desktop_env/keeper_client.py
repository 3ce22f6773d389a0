"""Clients of keepers: start them, send commands with deadlines, and end them."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import vm_pool
from desktop_image.locks import hold_file
from vm_pool.errors import ProviderError, VMsInUse
from vm_pool.processes import command_lines, ends_within, environment_for_guests
from vm_pool.providers.desktop_env.keeper_files import lock_of, record_of, state_folder, write_record
from vm_pool.providers.desktop_env.options import DesktopEnvOptions
from vm_pool.providers.folder_lock import still_holds
from vm_pool.providers.forked_children import release_in_children
from vm_pool.providers.program_output import last_lines

PROGRAM = "vm_pool.providers.desktop_env.keeper"
END_SECONDS = 10.0
"""From SIGKILL to the end of a process."""
_LOOK_SECONDS = 0.5
"""Between two looks at whether another thread has given up the keeper."""


class KeeperFailed(RuntimeError):
    """A keeper's command failed or took too long, or the keeper has ended."""


class KeeperClient:
    """Starts a keeper's process, and sends it commands.

    Args:
        provider: desktop-env's name of the provider.
        vm_id: The VM that it will hold.
        options: The provider's options.
        makes_vms: Whether commands other than ``stop`` make VMs, which nobody but the keeper can stop until it has recorded them.

    Raises:
        VMsInUse: Another living process has a keeper of this VM.
    """

    def __init__(self, provider: str, vm_id: str, options: DesktopEnvOptions, *, makes_vms: bool = False) -> None:
        self.vm_id = vm_id
        self._provider = provider
        self._options = options
        self._makes_vms = makes_vms
        self._may_make = False
        self._record = record_of(provider, vm_id)
        self._command_lock = threading.Lock()
        self._received = b""
        self._lock_file = lock_of(provider, vm_id)
        for folder in (self._record.parent, self._lock_file.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = hold_file(self._lock_file)
        if self._lock is None:
            raise VMsInUse(f"another process of this machine uses {vm_id}")
        self._log = self._record.with_suffix(".log")
        try:
            self._write_request()
            self._process = self._start()
        except BaseException:
            self._unlock()
            raise
        release_in_children(self)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", PROGRAM, "hold", str(self._record)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=state_folder(self._provider),
                env=environment_of_keepers(),
                start_new_session=True,  # the host handles Ctrl-C; all that the keeper starts can be ended with it
            )

    def ask(self, word: str, seconds: float) -> Any:
        """Executes a command in the keeper; one at a time.

        Raises:
            ProviderError: The provider cannot be used on this machine.
            KeeperFailed: It failed, or did not end in time; in the latter case the keeper is given up.
        """
        deadline = time.monotonic() + seconds
        if not self._command_lock.acquire(timeout=seconds):
            raise KeeperFailed(
                f"{self.vm_id}: {self._provider}: {word}: the keeper is still busy after {seconds:.0f} s"
            )
        try:
            stdin = self._process.stdin
            if stdin is None:
                raise ValueError("the keeper's input is a pipe")
            makes = self._makes_vms and word != "stop"
            self._may_make = self._may_make or makes
            try:
                stdin.write(json.dumps({"do": word}).encode() + b"\n")
            except (OSError, ValueError) as error:
                raise KeeperFailed(
                    f"{self.vm_id}: {self._provider}: {word}: the keeper has ended: {self._last_words()}"
                ) from error
            self._may_make = makes
            answer = self._answer(word, deadline, seconds)
        finally:
            self._command_lock.release()
        if answer.get("unavailable"):
            raise ProviderError(answer["error"])
        if "error" in answer:
            raise KeeperFailed(f"{self.vm_id}: {self._provider}: {word}: {answer['error']}")
        return answer["value"]

    @property
    def busy(self) -> bool:
        """Whether a command is running."""
        return self._command_lock.locked()

    def give_up(self) -> None:
        """Kills the keeper; one that may be making a VM stops it and ends by itself once it is made.

        Raises:
            subprocess.TimeoutExpired: It does not end.
        """
        if self._may_make:
            self.let_go()
        else:
            self.kill()

    def kill(self) -> None:
        """Kills the keeper and everything that it started; its VM may continue to run.

        Raises:
            subprocess.TimeoutExpired: It does not end.
        """
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_SECONDS)

    def close(self) -> None:
        """Ends a keeper that no longer holds a VM, or that was given up, and lets others have the VM in any case.

        Raises:
            subprocess.TimeoutExpired: It does not end.
        """
        try:
            self._end()
            if self._lock is not None and still_holds(self._lock, self._lock_file):  # else they are a later keeper's
                self._log.unlink(missing_ok=True)
                self._lock_file.unlink(missing_ok=True)
        finally:
            self._unlock()

    def let_go(self) -> None:
        """Closes the keeper's input and the lock: at the end of its input in all processes, the keeper stops its VM and ends."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._unlock()

    def _end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.give_up()
        if self._process.stdout is not None and self._command_lock.acquire(
            timeout=END_SECONDS
        ):  # nobody reads it any more
            self._process.stdout.close()
            self._command_lock.release()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _answer(self, word: str, deadline: float, seconds: float) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ValueError("the keeper's input and output are pipes")
        said = select.poll()  # `select.select` takes no descriptor above 1023
        said.register(stdout, select.POLLIN)
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0:
                last = self._last_words()
                self.give_up()
                raise KeeperFailed(
                    f"{self.vm_id}: {self._provider}: {word} took more than {seconds:.0f} s; it last said: {last}"
                )
            if not said.poll(min(left, _LOOK_SECONDS) * 1000):
                if stdin.closed:
                    raise KeeperFailed(f"{self.vm_id}: {self._provider}: {word}: the keeper was given up meanwhile")
                continue
            data = os.read(stdout.fileno(), 1 << 16)
            if not data:
                raise KeeperFailed(
                    f"{self.vm_id}: {self._provider}: {word}: the keeper has ended: {self._last_words()}"
                )
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _write_request(self) -> None:
        """Writes the request; keeps where the VM of an earlier record is, as that VM has to be stopped."""
        options = self._options
        request = {
            "provider": self._provider,
            "vm_id": self.vm_id,
            "paths": [_absolute(path) for path in options.paths],
            "region": options.region,
            "snapshot_name": options.snapshot_name,
            "headless": options.headless,
            "os_type": options.os_type,
            "screen": [options.screen_width, options.screen_height],
            "find_seconds": options.find_seconds,
            "stop_seconds": options.stop_seconds,
            "machine": socket.gethostname(),
            "path": None,
        }
        with suppress(OSError, ValueError, KeyError):
            earlier = json.loads(self._record.read_text())
            if earlier["path"] is not None:
                request |= {"path": earlier["path"], "region": earlier["region"], "account": earlier.get("account")}
        write_record(self._record, request)

    def _last_words(self) -> str:
        return last_lines(self._log, 2) or "nothing"


def end_keepers_of(provider: str, vm_id: str, seconds: float, *, kill: bool) -> None:
    """Makes sure that no earlier keeper holds a VM: waits for those that are stopping it, then kills them.

    Raises:
        KeeperFailed: There is still one, and it is not to be killed.
    """
    deadline = time.monotonic() + seconds
    record = record_of(provider, vm_id)
    for pid, words in command_lines():
        if PROGRAM not in words or str(record) not in words:
            continue
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                if not ends_within(descriptor, deadline - time.monotonic()):
                    if not kill:
                        raise KeeperFailed(f"{vm_id}: {provider}: an earlier keeper still makes or stops its VM")
                    os.killpg(pid, signal.SIGKILL)
                    ends_within(descriptor, END_SECONDS)
            finally:
                os.close(descriptor)


def _absolute(path: str) -> str:
    """Returns a file's full path, as a keeper runs in another folder; other names stay as they are."""
    file = Path(path).expanduser()
    return str(file.absolute()) if file.exists() else path


def environment_of_keepers() -> dict[str, str]:
    """Returns an environment in which a keeper finds the same packages, and the keys of its cloud, if any.

    A folder for temporary files may be this process's own: a keeper stops its VM after that folder was removed.
    """
    source = str(Path(vm_pool.__file__).parent.parent)
    paths = [source, os.environ.get("PYTHONPATH", "")]
    keeper_variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    inherited = {name: value for name, value in environment_for_guests().items() if name != "TMPDIR"}
    return inherited | keeper_variables
