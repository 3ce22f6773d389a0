"""The system calls that sandboxed code may not make, as a BPF program for bubblewrap's --seccomp.

Namespaces, missing files and resource limits are the walls; this closes what they leave open: more processes, memory that
no limit counts, sockets that no network namespace holds, and kernel features with a history of holes.
"""

from __future__ import annotations

import platform
import struct

_PROCESSES: dict[str, tuple[int, int | None]] = {"clone": (56, 220), "fork": (57, None), "vfork": (58, None)}
_UNCOUNTED_MEMORY = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
_SOCKETS = {"socket": (41, 198)}
_KERNEL = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
DENIED: dict[str, tuple[int, int | None]] = {**_PROCESSES, **_UNCOUNTED_MEMORY, **_SOCKETS, **_KERNEL}
"""Name to numbers on x86_64 and aarch64; they fail with EPERM."""
_CLONE3 = 435
"""Fails with ENOSYS instead, so that the C library falls back to `clone`."""

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the table and the kernel's name of the architecture (AUDIT_ARCH_*)."""

_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_EPERM = 0x00050001
_ENOSYS = 0x00050026
_NUMBER_OFFSET, _ARCH_OFFSET = 0, 4
_X32 = 0x40000000
"""Numbers from here up are x86_64's second system call table."""


def supported(machine: str | None = None) -> bool:
    """Whether there is a table for the machine."""
    return (machine or platform.machine()) in _MACHINES


def program(machine: str | None = None) -> bytes:
    """The filter for the machine, this one by default.

    Raises:
        KeyError: There is no table for it; see `supported`.
    """
    column, architecture = _MACHINES[machine or platform.machine()]
    numbers = [number for row in DENIED.values() if (number := row[column]) is not None]
    lines = [
        _line(_LOAD, _ARCH_OFFSET),
        _line(_EQUAL, architecture, if_true=1),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER_OFFSET),
        _line(_AT_LEAST, _X32, if_true=len(numbers) + 2),
        _line(_EQUAL, _CLONE3, if_true=len(numbers) + 2),
        *(_line(_EQUAL, number, if_true=len(numbers) - index) for index, number in enumerate(numbers)),
        _line(_RETURN, _ALLOW),
        _line(_RETURN, _EPERM),
        _line(_RETURN, _ENOSYS),
    ]
    return b"".join(lines)


def _line(code: int, value: int, *, if_true: int = 0) -> bytes:
    """One instruction; `if_true` is how many to skip when the comparison holds."""
    return struct.pack("<HBBI", code, if_true, 0, value)
