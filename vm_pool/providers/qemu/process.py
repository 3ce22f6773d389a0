"""One QEMU process: starts it through its keeper, sends commands, saves and loads snapshots, and ends it."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vm_pool.processes import environment_for_guests
from vm_pool.providers.folder_lock import still_holds
from vm_pool.providers.forked_children import release_in_children
from vm_pool.providers.guest_server import PORTS, DesktopUnwell
from vm_pool.providers.program_output import ending, last_lines
from vm_pool.providers.qemu.command_line import CONSOLE, CONSOLE_BYTES
from vm_pool.providers.qemu.folders import END_SECONDS, KEEPER, end_held, end_leftover, make_folder
from vm_pool.providers.qemu.private_network import PrivateNetwork
from vm_pool.providers.qemu.qmp import QMP, QMPError

START_SECONDS = 30.0
"""From launching QEMU to its monitor's greeting; tenths of a second unless the machine is very busy."""
ANSWER_SECONDS = 20.0
"""For short calls."""
SNAPSHOT_SECONDS = 120.0
"""For writing or reading the machine's memory; half a second for a guest that has just started."""
CLOCK_SECONDS = 20.0
_LONGEST_ANSWER = 100
"""Of the guest about its clock."""
SNAPSHOT = "clean"

_FORWARD = re.compile(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s+\S+\s+(\d+)")


class ProcessorFailed(QMPError):
    """A machine has stopped for good: KVM lacks something that its guest needs, as may happen inside other VMs."""


class QemuStopped(RuntimeError):
    """The VM was stopped during an operation on it."""


class QemuProcess:
    """A VM's processes and folder. Operations raise `QemuStopped` once `end` was called.

    Args:
        vm_id: Names them.
        network: Its own; None: its ports are on this machine's loopback, and its guest has no internet access.
    """

    def __init__(self, vm_id: str, network: PrivateNetwork | None = None) -> None:
        self.vm_id = vm_id
        self._network = network
        self.ports: dict[str, int] = {}
        """Ports on the loopback of this machine, or of its own network, by purpose."""
        self.screen = (0, 0)
        """Pixels, from its first screenshot."""
        self._folder = Path()
        self._nodes: list[str] = []
        self._lock = threading.Lock()
        self._stopped = False
        self._keeper: subprocess.Popen[bytes] | None = None
        self._held: int | None = None
        self._monitor: QMP | None = None
        self._clock: socket.socket | None = None
        self._console = b""
        release_in_children(self)

    @property
    def stopped(self) -> bool:
        """Whether `end` was called."""
        return self._stopped

    def launch(
        self, make_disks: Callable[[Path], None], command: Callable[[Path, int], list[str]], nodes: list[str]
    ) -> None:
        """Starts QEMU; the machine is paused until `revert` or `run`.

        Args:
            make_disks: Makes the disks in the machine's folder.
            command: Returns QEMU's command line, for that folder and the descriptor of the clock's socket.
            nodes: The disks in a snapshot; the first one also stores the memory.

        Raises:
            RuntimeError: QEMU does not start; one sentence says why.
        """
        (self._folder, self._held), self._nodes = make_folder(self.vm_id), nodes
        make_disks(self._folder)
        network = self._network
        lead_through = network.lead_through if network is not None else lambda _folder, words: words
        monitor, qemus_monitor = socket.socketpair()
        clock, qemus_clock = socket.socketpair()
        with qemus_monitor, qemus_clock, self._lock:
            self._monitor, self._clock = QMP(monitor, self.vm_id), clock
            if self._stopped:
                raise QemuStopped(f"{self.vm_id} was stopped before it started")
            keeper = self._keeper = subprocess.Popen(  # noqa: S603
                [
                    *("sh", str(KEEPER), str(self._folder)),
                    *lead_through(self._folder, command(self._folder, qemus_clock.fileno())),
                ],
                stdin=subprocess.PIPE,
                stdout=qemus_monitor.fileno(),
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pass_fds=[qemus_clock.fileno()],
                start_new_session=True,  # the host handles Ctrl-C at its terminal
                cwd="/",
                env=environment_for_guests(),
            )
        try:
            self._qmp().begin(START_SECONDS)
            said = self._ask("human-monitor-command", {"command-line": "info usernet"})
            if network is not None:
                network.enter(keeper.pid)
        except QMPError as error:
            raise RuntimeError(
                f"{self.vm_id}: QEMU did not start: {last_lines(self._folder / 'messages', 4) or error}"
            ) from error
        inside = {int(to): int(port) for port, to in _FORWARD.findall(said)}
        self.ports = {purpose: inside[port] for purpose, port in PORTS.items()}

    def run(self) -> None:
        """Lets the machine run, unless it runs already.

        Raises:
            ProcessorFailed: KVM cannot run the guest.
            QMPError: QEMU has ended, or does not answer, or its guest has shut down.
        """
        status = self._ask("query-status")["status"]
        if status == "internal-error":
            raise ProcessorFailed(f"{self.vm_id}: KVM could not go on running its guest (QEMU's state: internal-error)")
        if status == "shutdown":
            raise QMPError(f"{self.vm_id}: the guest has shut itself down")
        if status != "running":
            self._ask("cont")

    def save(self) -> None:
        """Takes the snapshot that `revert` goes back to: memory, devices and disks.

        Raises:
            QMPError: It cannot be taken.
        """
        self._snapshot("snapshot-save")

    def revert(self) -> None:
        """Goes back to the snapshot, and runs; its internet access is closed.

        Raises:
            QMPError: That fails, or QEMU has ended.
        """
        if self._network is not None:
            self._network.shut()
        self._snapshot("snapshot-load")
        self.run()

    def let_out(self) -> None:
        """Opens its internet access, if it has any.

        Raises:
            OSError: The machine has ended.
            RuntimeError: The kernel refuses.
        """
        if self._network is not None:
            self._network.open()

    def quit(self) -> Path:
        """Ends QEMU with all data written to its disks; returns their folder, which `end` removes.

        Raises:
            QMPError: It does not end.
        """
        self._ask("quit")
        self._qmp().wait_for_end(ANSWER_SECONDS)
        return self._folder

    def set_clock(self) -> None:
        """Sets the guest's clock to the current time; what the guest has said before is skipped.

        Raises:
            DesktopUnwell: The guest does not confirm it.
        """
        with self._lock:
            clock = self._clock
        if clock is None:
            raise QemuStopped(f"{self.vm_id} is not running")
        said = b""
        try:
            _skip_received(clock)
            clock.settimeout(CLOCK_SECONDS)
            clock.sendall(f"time {time.time():.3f}\n".encode())
            while not said.endswith(b"\n") and (data := clock.recv(_LONGEST_ANSWER - len(said))):
                said += data
        except OSError as error:
            raise DesktopUnwell(f"{self.vm_id}: its clock could not be set: {error}") from error
        if said != b"set\n":
            raise DesktopUnwell(f"{self.vm_id}: its clock could not be set: {said!r}")

    def connect(self, purpose: str) -> socket.socket:
        """Opens a connection to one of its ports.

        Raises:
            OSError: QEMU does not listen.
        """
        if self._network is not None:
            return self._network.connect(self.ports[purpose], ANSWER_SECONDS)
        return socket.create_connection(("127.0.0.1", self.ports[purpose]), timeout=ANSWER_SECONDS)

    def console(self) -> str:
        """Returns the last lines that its system wrote; of a QEMU that has ended, those that were read before."""
        with suppress(QMPError, QemuStopped):
            new = self._ask("ringbuf-read", {"device": CONSOLE, "size": CONSOLE_BYTES, "format": "base64"})
            self._console = (self._console + base64.b64decode(new))[-CONSOLE_BYTES:]
        return ending(self._console, 4) or "empty"

    def end(self) -> None:
        """Ends the machine in whatever state it is, and removes its folder; running operations raise.

        Raises:
            TimeoutError: A process does not end.
        """
        self._stopped = True
        self.put_away()

    def put_away(self) -> None:
        """Ends the machine like `end`, but it may be launched again."""
        with self._lock:
            keeper, self._keeper = self._keeper, None
            monitor, self._monitor = self._monitor, None
            clock, self._clock = self._clock, None
            held, self._held = self._held, None
        if monitor is not None:
            monitor.close()
        if clock is not None:
            clock.close()
        if keeper is not None:
            if keeper.stdin is not None:
                keeper.stdin.close()
            try:
                keeper.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait(END_SECONDS)
        try:
            if held is None:
                end_leftover(self.vm_id)
            elif still_holds(held, self._folder):
                end_held(self.vm_id)
        finally:
            if held is not None:
                os.close(held)
            if self._network is not None:
                self._network.close()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Turns any exception inside that `end` causes into a `QemuStopped`."""
        try:
            yield
        except Exception as error:
            if self._stopped and not isinstance(error, QemuStopped):
                raise QemuStopped(f"{self.vm_id} was stopped") from error
            raise

    def let_go(self) -> None:
        """For a fork of this process: closes its end of the pipe, so that the VM ends with the original process."""
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()

    def _snapshot(self, what: str) -> None:
        arguments = {"tag": SNAPSHOT, "vmstate": self._nodes[0], "devices": self._nodes}
        self._qmp().run_job(what, arguments, seconds=SNAPSHOT_SECONDS)

    def _ask(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        return self._qmp().execute(command, arguments, seconds=ANSWER_SECONDS)

    def _qmp(self) -> QMP:
        monitor = self._monitor
        if monitor is None:
            raise QemuStopped(f"{self.vm_id} is not running")
        return monitor


def _skip_received(connection: socket.socket) -> None:
    """Reads what has come already: root in a guest that was reverted since may have written answers to later questions."""
    connection.setblocking(False)
    until = time.monotonic() + CLOCK_SECONDS
    with suppress(BlockingIOError):
        while connection.recv(1 << 16) and time.monotonic() < until:
            pass
