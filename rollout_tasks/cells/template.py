"""The template: the process that cells are forked from. It imports what they need once, then makes one cell per request.

`python -m rollout_tasks.cells.template LISTENER MODULE`, started in the cells' filesystem (`filesystem.py`). It has the
rights to make cells and touches no untrusted code or data. A client connects to the listener and sends one message with a
descriptor, the cell's end of a channel. The connection stays open as long as the cell is wanted; closing it ends the cell.
A byte on it interrupts the cell's call. The template ends when its standard input closes, which its owner and the owner's
children hold open: bubblewrap may miss that its parent has died while it starts itself.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import secrets
import select
import signal
import socket
import struct
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from rollout_tasks.cells import isolation
from rollout_tasks.cells.isolation import CellLimits

INTERRUPT = b"i"
INTERRUPT_SIGNAL = signal.SIGUSR1
INTERRUPTED = 1 << 16
"""The answer to `INTERRUPT`, once the cell has the signal."""
NOT_MADE = 1 << 17
"""The answer if the cell cannot be made, with the error's number added. Any other answer is the cell's exit code."""
NUMBER = struct.Struct("i")
"""An answer."""
LONGEST_REQUEST = 1 << 16
_OWNERS = 0
"""Standard input."""


@dataclass(slots=True)
class _Cell:
    """A cell as the template sees it."""

    pid: int
    process: int
    """Descriptor of the process; readable once it has ended."""
    client: socket.socket


class Template:
    """Makes cells, and ends those that are no longer wanted."""

    def __init__(self, listener: socket.socket, serve: Any) -> None:
        self._listener = listener
        self._serve = serve
        self._itself = os.pidfd_open(os.getpid())
        self._cells: dict[int, _Cell] = {}
        """Cells by each of their two descriptors."""
        self._next_user = secrets.randbelow(1 << 30)  # there may be other templates
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._poll.register(_OWNERS, 0)  # its end only

    def run(self) -> None:
        """Serves until nobody is left who may want a cell, or the process is killed."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == _OWNERS:
                    self._end_cells()
                    return
                if descriptor == self._listener.fileno():
                    self._accept()
                elif (cell := self._cells.get(descriptor)) is not None:
                    if descriptor == cell.process:
                        self._ended(cell)
                    else:
                        self._told(cell)

    def _end_cells(self) -> None:
        """Kills the cells: bubblewrap's first process inside waits for them."""
        for cell in self._cells.values():
            signal.pidfd_send_signal(cell.process, signal.SIGKILL)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.settimeout(5)
        try:
            words, descriptors, _, _ = socket.recv_fds(client, LONGEST_REQUEST, 1)
            request = json.loads(words)
            channel = descriptors[0]
        except (OSError, ValueError, IndexError):
            client.close()
            return
        self._next_user += 1
        try:
            isolation.begin_process_namespace(self._itself)
            pid = os.fork()
        except OSError as error:  # as when processes or memory are at their limit: other cells go on
            sys.stderr.write(f"no cell can be made now: {error}\n")
            os.close(channel)
            with contextlib.suppress(OSError):
                client.send(NUMBER.pack(NOT_MADE + (error.errno or errno.EIO)))
            client.close()
            return
        if pid == 0:
            self._become(request, channel, client)
        os.close(channel)
        client.setblocking(False)
        cell = _Cell(pid, os.pidfd_open(pid), client)
        for descriptor in (cell.process, client.fileno()):
            self._cells[descriptor] = cell
            self._poll.register(descriptor, select.POLLIN | select.POLLRDHUP)

    def _become(self, request: dict[str, Any], channel: int, client: socket.socket) -> None:
        """Turns this process into the cell; does not return."""
        try:
            client.close()  # on it the template speaks to the client, and nobody else
            for cell in {id(one): one for one in self._cells.values()}.values():
                os.close(cell.process)
                cell.client.close()
            os.close(self._itself)
            self._listener.close()
            with socket.socket(fileno=channel) as connection:
                _enter(request, connection, self._next_user)
                self._serve(connection)
        except BaseException:  # noqa: BLE001 (the end of this process, whatever ends it; nobody else hears of it)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _told(self, cell: _Cell) -> None:
        """Handles a message of the cell's client: interrupts the cell, or kills it if the client is gone."""
        try:
            word = cell.client.recv(1)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        signal.pidfd_send_signal(cell.process, INTERRUPT_SIGNAL if word == INTERRUPT else signal.SIGKILL)
        if word == INTERRUPT:
            with contextlib.suppress(OSError):
                cell.client.send(NUMBER.pack(INTERRUPTED))
        else:
            self._poll.unregister(cell.client)

    def _ended(self, cell: _Cell) -> None:
        _, status = os.waitpid(cell.pid, 0)
        for descriptor in (cell.process, cell.client.fileno()):
            del self._cells[descriptor]
            with contextlib.suppress(KeyError):
                self._poll.unregister(descriptor)
        os.close(cell.process)
        with contextlib.suppress(OSError):
            cell.client.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))
        cell.client.close()


def _enter(request: dict[str, Any], connection: socket.socket, user: int) -> None:
    """Isolates this process, and sends the worker the listening sockets."""
    limits = CellLimits(**request["limits"])
    isolation.enter_namespaces(limits)
    isolation.name_hosts(request["hosts"])
    listening = isolation.listeners(request["ports"], request["hosts"])
    isolation.give_up_rights(isolation.user_of(user), limits)
    descriptors = [one.fileno() for one in listening.values()]
    socket.send_fds(connection, [json.dumps(list(listening)).encode()], descriptors)
    for one in listening.values():
        one.close()
    nowhere = os.open("/dev/null", os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def main() -> None:
    """Runs the template.

    Arguments: the listener's descriptor, and the module whose function `serve` each cell calls with its channel.
    """
    listener = socket.socket(fileno=int(sys.argv[1]))
    serve = importlib.import_module(sys.argv[2]).serve
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    Template(listener, serve).run()


if __name__ == "__main__":
    main()
