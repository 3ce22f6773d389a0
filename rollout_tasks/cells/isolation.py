"""What a process does to itself to become a cell: namespaces of its own, a folder in memory, limits, no rights, few system calls.

Runs in a process that was forked from the template (`template.py`) and is about to touch what is not ours. The order matters:
each step needs rights that a later one gives up.
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
"""The one folder that can be written; it is in memory and goes with the cell."""

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
    """Of all its processes together, as who watches it counts; each one has it as a limit of its own, too."""
    folder_bytes: int = 2 << 30
    """Files, all together; they are in memory."""
    folder_files: int = 20_000
    processes: int = 128
    """And threads."""
    cpu_seconds: int = 3600
    """Processor time of each process."""
    open_files: int = 512
    """Of each process."""
    sockets: int = 256
    """Of all its processes together."""
    connections: int = 64
    """TCP sockets among them: each may hold some megabytes of the kernel's memory."""


def user_of(number: int) -> int | None:
    """Whom a cell becomes where this process is root: of no other cell beside it; None where this process is not root."""
    return _FIRST_USER + number % _USERS if os.geteuid() == 0 else None


def begin_process_namespace(itself: int) -> None:
    """The next process that this one forks is the first of a namespace of processes; may be repeated.

    Args:
        itself: A descriptor (`os.pidfd_open`) of this process.

    Raises:
        OSError: This process may not.
    """
    _checked(_libc.setns(itself, _NEW_PROCESSES), "return to its namespace of processes")
    _checked(_libc.unshare(_NEW_PROCESSES), "make a namespace of processes")


def enter_namespaces(limits: CellLimits) -> None:
    """Mounts, network, name and IPC of its own: `FOLDER` is fresh, and the network has only a loopback.

    Raises:
        OSError: This process may not.
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
    """Sockets on the cell's loopback, for somebody outside to accept connections at.

    Args:
        ports: A port of 127.0.0.1 by what is reached there.
        hosts: Loopback addresses by the name of a host that is reached at port 443 of them.
    """
    found = {name: socket.create_server(("127.0.0.1", port), backlog=64) for name, port in ports.items()}
    for host, address in hosts.items():
        found[host] = socket.create_server((address, 443), backlog=64)
    return found


def name_hosts(hosts: Mapping[str, str]) -> None:
    """Gives hosts their addresses, in the place of DNS, of which there is none: the filesystem's ``/etc/hosts`` leads to this file.

    Args:
        hosts: Address by name.
    """
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in hosts.items())]
    table = Path(FOLDER, HOSTS_NAME)
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    table.chmod(0o444)


def give_up_rights(user: int | None, limits: CellLimits) -> None:
    """Limits, another user where there is one to be, no capabilities, and few system calls: there is no way back.

    Args:
        user: Whom to become, and which group; None: who it is already, as in a namespace that has one user only.
        limits: What it may use.

    Raises:
        OSError: A step fails.
    """
    # Where all cells are one user, they share its limit, and who watches them counts each one's.
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
    """As `vm_pool.namespaces` does it; to see whether cells can be made, this runs without any package installed."""
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
