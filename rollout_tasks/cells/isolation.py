"""How a process turns itself into a cell: its own namespaces, a folder in memory, limits, no rights, few system calls.

Runs in a process forked from the template (`template.py`), before any untrusted code. The order matters: each step needs
rights that a later one gives up.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

from rollout_tasks.cells import seccomp, system_calls

FOLDER = "/cell"
"""The only writable folder; it is in memory and is deleted with the cell."""

HOSTS_NAME = ".hosts"

_NEW_MOUNTS, _NEW_NAME, _NEW_IPC, _NEW_PROCESSES, _NEW_NETWORK = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14
_NO_SUID, _NO_DEVICES, _NO_EXEC = 2, 4, 8
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _DROP_BOUNDING, _AMBIENT, _SET_DUMPABLE = 38, 22, 24, 47, 4
_FILTER, _CLEAR_ALL = 2, 4
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_FIRST_USER, _USERS = 0x70000000, 0x0F000000
_CELLS_OF_ONE_USER = 32
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class CellLimits:
    """What one cell may use."""

    memory_bytes: int = 2 << 30
    """For all its processes together, as `ResourceWatch` counts; also the limit of each process."""
    folder_bytes: int = 2 << 30
    """For all files together; they are in memory."""
    folder_files: int = 20_000
    processes: int = 128
    """Processes and threads together."""
    mappings: int = 100_000
    """Of memory, for all its processes together; a Python process has about 500. Each takes up to 640 bytes of kernel memory,
    with a file that it keeps open and a lock on that; `memory_bytes` does not count those.
    """
    cpu_seconds: int = 3600
    """Processor time of each process."""
    open_files: int = 512
    """For each process."""
    sockets: int = 256
    """For all its processes together."""
    connections: int = 64
    """TCP sockets among them; each may use some megabytes of kernel memory."""


def user_of(number: int) -> int | None:
    """Returns the cell's user id, different from that of other cells; None if this process is not root."""
    return _FIRST_USER + number % _USERS if os.geteuid() == 0 else None


def begin_process_namespace(itself: int) -> None:
    """Makes the next forked process the first of a new process namespace; may be repeated.

    Args:
        itself: A descriptor (`os.pidfd_open`) of this process.

    Raises:
        OSError: This process lacks the rights.
    """
    _checked(_libc.setns(itself, _NEW_PROCESSES), "return to its namespace of processes")
    _checked(_libc.unshare(_NEW_PROCESSES), "make a namespace of processes")


def enter_namespaces(limits: CellLimits) -> None:
    """Enters new mount, network, host name and IPC namespaces: `FOLDER` is empty, the network has only a loopback.

    Raises:
        OSError: This process lacks the rights.
    """
    _checked(_libc.unshare(_NEW_MOUNTS | _NEW_NAME | _NEW_IPC | _NEW_NETWORK), "make namespaces")
    _checked(_libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), "keep mounts to itself")
    options = f"size={limits.folder_bytes},nr_inodes={limits.folder_files},mode=1777"
    flags = _NO_SUID | _NO_DEVICES | _NO_EXEC
    _checked(_libc.mount(b"cell", FOLDER.encode(), b"tmpfs", flags, options.encode()), f"mount {FOLDER}")
    os.chdir(FOLDER)
    socket.sethostname("cell")
    _bring_loopback_up()


def listeners(ports: Mapping[str, int], hosts: Mapping[str, str]) -> dict[str, socket.socket]:
    """Returns sockets on the cell's loopback; the worker outside accepts their connections.

    Args:
        ports: Port of 127.0.0.1, by the name of what is reached there.
        hosts: Loopback address by host name; the host is reached at its port 443.
    """
    found = {name: socket.create_server(("127.0.0.1", port), backlog=64) for name, port in ports.items()}
    for host, address in hosts.items():
        found[host] = socket.create_server((address, 443), backlog=64)
    return found


def name_hosts(hosts: Mapping[str, str]) -> None:
    """Writes the hosts' addresses to the file that ``/etc/hosts`` links to; a cell has no DNS.

    Args:
        hosts: Address by name.
    """
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in hosts.items())]
    table = Path(FOLDER, HOSTS_NAME)
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    table.chmod(0o444)


def give_up_rights(user: int | None, limits: CellLimits) -> None:
    """Sets limits, changes the user if one is given, drops all capabilities and most system calls. Cannot be undone.

    Args:
        user: User and group id to change to; None keeps the current ones, as in a namespace with only one user.
        limits: What the cell may use.

    Raises:
        OSError: A step fails.
    """
    # If all cells are one user, they share its limit; `ResourceWatch` counts each cell's processes.
    _limit(limits, processes=limits.processes * (1 if user is not None else _CELLS_OF_ONE_USER))
    _prctl(_SET_NO_NEW_PRIVILEGES, 1, "give up gaining rights")
    for capability in range(_MOST_CAPABILITIES):
        if _libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0) != 0:
            break
    _prctl(_AMBIENT, _CLEAR_ALL, "clear capabilities")
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    _checked(_libc.capset(header, struct.pack("6I", *[0] * 6)), "drop capabilities")
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _filter_system_calls()


def _limit(limits: CellLimits, processes: int) -> None:
    most = {
        resource.RLIMIT_DATA: limits.memory_bytes,
        resource.RLIMIT_FSIZE: limits.folder_bytes,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_SIGPENDING: 256,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in most.items():
        resource.setrlimit(kind, (value, value))


def _filter_system_calls() -> None:
    program = seccomp.program(system_calls.ALONE | system_calls.PROCESSES | system_calls.SOCKETS)
    instructions = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    _checked(_libc.prctl(_SET_SECCOMP, _FILTER, described, 0, 0), "filter system calls")


def _bring_loopback_up() -> None:
    """Does the same as `vm_pool.namespaces`; the self-test runs this without any installed package."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", ioctl(any_socket, _GET_FLAGS, request), 16)
        ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def _prctl(what: int, value: int, doing: str) -> None:
    _checked(_libc.prctl(what, value, 0, 0, 0), doing)


def _checked(outcome: int, doing: str) -> None:
    if outcome != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a cell cannot {doing}: {os.strerror(number)}")
