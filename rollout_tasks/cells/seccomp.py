"""The seccomp filter for confined code, a BPF program for the kernel: an allowlist of system calls; others fail with EPERM.

Namespaces, missing files and resource limits isolate the code; this filter keeps it away from the rest of the kernel,
including calls that are newer than this list.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence

from rollout_tasks.cells.system_calls import NUMBERS

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the table, and the kernel's constant for the architecture (AUDIT_ARCH_*)."""

_LOAD = 0x20
_EQUAL = 0x15
_GREATER = 0x25
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_MASK = 0x54
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERROR = 0x00050000
"""Plus the error's number."""
_SUCCESS = 0x00050000
"""Without making the call."""
_EPERM = 0x00050001
_EINVAL = 0x00050016
_ENOSYS = 0x00050026
_EPROTONOSUPPORT = 0x0005005D
_EAFNOSUPPORT = 0x00050061
_NUMBER_OFFSET, _ARCH_OFFSET = 0, 4
_FIRST_ARGUMENT_OFFSET, _SECOND_ARGUMENT_OFFSET, _THIRD_ARGUMENT_OFFSET, _FOURTH_ARGUMENT_OFFSET = 16, 24, 32, 40
"""Of the lower half: the kernel uses no more of the arguments that are checked."""
_X32 = 0x40000000
"""Numbers from here on are x86_64's second system call table."""

_NEW_NAMESPACES = 0x7E020080
"""Every flag of `clone` that makes a namespace."""
_FAMILIES = (1, 2, 10, 16)
"""Unix, IPv4, IPv6, netlink: address families that a network namespace confines."""
_UNIX, _NETLINK = 1, 16
_SOCKET_TYPE = 0xF
"""The bits of a socket's type; the others are flags."""
_STREAMS, _DATAGRAMS = (1, (0, 6)), (2, (0, 17))
"""Types of IPv4 and IPv6 sockets, each with its protocols. For any other, the host would look for a module to load."""
_ROUTES = 0
"""The protocol of netlink sockets, for the same reason."""
_FILE_COMMANDS = (*range(6), 1030, 1032, 1033, 1034)
"""Of `fcntl`: duplicates, flags, whether a lock is in the way, size of a pipe, seals. Among the others are leases, which stop
every program of the host that opens the file.
"""
_LOCK_COMMANDS = (6, 7)
"""F_SETLK and F_SETLKW of `fcntl`, which seem to succeed and do nothing. A process could have millions of locks, which take
192 bytes of kernel memory each, and no limit counts them. Counting them from outside is too slow: on a busy machine, a list
of 166,000 locks (/proc/locks) took three minutes to read. These locks keep only processes apart: SQLite itself does that for
connections within one. `flock` works, with one lock for an open file.
"""
_HUGE_PAGES = 0x40000
"""MAP_HUGETLB of `mmap`: pages that the host has reserved for certain programs. Desktops are refused it, too."""
_KIND_OF_MAPPING, _SHARED_WITHOUT_FILE = 0x2F, 0x21
"""MAP_TYPE and MAP_ANONYMOUS; MAP_SHARED and MAP_ANONYMOUS. The kernel keeps such memory, and counts it for no process, when
its pages are no longer mapped but one.
"""
_LINE_DISCIPLINE = 0x5423
"""TIOCSETD of `ioctl`."""
_SOCKET_COMMANDS = (0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89A0, 0x89A1)
"""Of `ioctl`, too: SIOCGIFBR, SIOCSIFBR (bridges), SIOCADDDLCI, SIOCDELDLCI (Frame Relay, before Linux 5.15), SIOCGIFVLAN,
SIOCSIFVLAN (VLANs), SIOCBRADDBR, SIOCBRDELBR (bridges).
"""
_REFUSED_COMMANDS: Mapping[int, int] = {_LINE_DISCIPLINE: errno.EINVAL} | dict.fromkeys(_SOCKET_COMMANDS, errno.ENOTTY)
"""The error of each command for which the host would load a module before it asks for any right: what a kernel says that lacks
the line discipline, or does not know the command. Desktops refuse the same (`vm_pool.providers.local.seccomp`); this module
imports nothing but the standard library, as the first process of cells has nothing else.
"""
_WITH_CONDITION = ("clone", "fcntl", "ioctl", "mmap", "socket", "socketpair")


def supported(machine: str | None = None) -> bool:
    """Returns whether there is a table for the machine."""
    return (machine or platform.machine()) in _MACHINES


def program(allowed: Collection[str], machine: str | None = None) -> bytes:
    """Returns the filter for a machine, by default this one.

    Args:
        allowed: Names of system calls. `clone` cannot make namespaces; sockets are limited to `_FAMILIES` and their usual
            protocols, `socketpair` to Unix sockets, `fcntl` to `_FILE_COMMANDS`, `ioctl` to all but
            `_REFUSED_COMMANDS`; `fcntl` makes no locks (`_LOCK_COMMANDS`), `mmap` no huge pages and no shared memory
            without a file.

    Raises:
        KeyError: There is no table for the machine (see `supported`), or a call is not in it.
    """
    column, architecture = _MACHINES[machine or platform.machine()]

    def number(name: str) -> int | None:
        return NUMBERS[name][column]

    plain = [one for name in allowed if name not in _WITH_CONDITION and (one := number(name)) is not None]
    lines = [
        _line(_LOAD, _ARCH_OFFSET),
        _line(_EQUAL, architecture, if_true=1),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER_OFFSET),
        *_when(_AT_LEAST, _X32, [_line(_RETURN, _EPERM)]),
    ]
    if "clone" in allowed:
        # clone3 hides its flags from filters: the C library falls back to clone.
        lines += _when(_EQUAL, number("clone3"), [_line(_RETURN, _ENOSYS)])
        lines += _when(_EQUAL, number("clone"), _flags_checked())
    if "fcntl" in allowed:
        lines += _when(_EQUAL, number("fcntl"), _file_command_checked())
    if "ioctl" in allowed:
        lines += _when(_EQUAL, number("ioctl"), _none_of(_SECOND_ARGUMENT_OFFSET, _REFUSED_COMMANDS))
    if "mmap" in allowed:
        lines += _when(_EQUAL, number("mmap"), _mapping_checked())
    if "socket" in allowed:
        lines += _when(_EQUAL, number("socket"), _socket_checked())
    if "socketpair" in allowed:
        lines += _when(_EQUAL, number("socketpair"), _one_of(_FIRST_ARGUMENT_OFFSET, [_UNIX], _EAFNOSUPPORT))
    for first, last in _ranges(plain):
        lines += _when(_AT_LEAST, first, _when(_GREATER, last, [_line(_RETURN, _ALLOW)], otherwise=True))
    lines.append(_line(_RETURN, _EPERM))
    return b"".join(lines)


def _flags_checked() -> list[bytes]:
    return [
        _line(_LOAD, _FIRST_ARGUMENT_OFFSET),
        _line(_ANY_BIT, _NEW_NAMESPACES, if_false=1),
        _line(_RETURN, _EPERM),
        _line(_RETURN, _ALLOW),
    ]


def _file_command_checked() -> list[bytes]:
    lines = [_line(_LOAD, _SECOND_ARGUMENT_OFFSET)]
    for command in _LOCK_COMMANDS:
        lines += _when(_EQUAL, command, [_line(_RETURN, _SUCCESS)])
    return [*lines, *_one_of(_SECOND_ARGUMENT_OFFSET, _FILE_COMMANDS, _EINVAL)]


def _mapping_checked() -> list[bytes]:
    return [
        _line(_LOAD, _FOURTH_ARGUMENT_OFFSET),
        _line(_ANY_BIT, _HUGE_PAGES, if_false=1),
        _line(_RETURN, _EPERM),
        _line(_MASK, _KIND_OF_MAPPING),
        *_when(_EQUAL, _SHARED_WITHOUT_FILE, [_line(_RETURN, _EPERM)]),
        _line(_RETURN, _ALLOW),
    ]


def _socket_checked() -> list[bytes]:
    lines = [_line(_LOAD, _FIRST_ARGUMENT_OFFSET)]
    lines += _when(_EQUAL, _UNIX, [_line(_RETURN, _ALLOW)])
    lines += _when(_EQUAL, _NETLINK, _one_of(_THIRD_ARGUMENT_OFFSET, [_ROUTES], _EPROTONOSUPPORT))
    for family in _FAMILIES:
        if family not in (_UNIX, _NETLINK):
            lines += _when(_EQUAL, family, _type_checked())
    return [*lines, _line(_RETURN, _EAFNOSUPPORT)]


def _type_checked() -> list[bytes]:
    lines = [_line(_LOAD, _SECOND_ARGUMENT_OFFSET), _line(_MASK, _SOCKET_TYPE)]
    for kind, protocols in (_STREAMS, _DATAGRAMS):
        lines += _when(_EQUAL, kind, _one_of(_THIRD_ARGUMENT_OFFSET, protocols, _EPROTONOSUPPORT))
    return [*lines, _line(_RETURN, _EPROTONOSUPPORT)]


def _one_of(offset: int, values: Sequence[int], otherwise: int) -> list[bytes]:
    """Returns lines that allow the call if the argument is one of these, and return `otherwise` if not."""
    lines = [_line(_LOAD, offset)]
    for value in values:
        lines += _when(_EQUAL, value, [_line(_RETURN, _ALLOW)])
    return [*lines, _line(_RETURN, otherwise)]


def _none_of(offset: int, refused: Mapping[int, int]) -> list[bytes]:
    """Returns lines that allow the call unless the argument is one of these values; each has its error."""
    lines = [_line(_LOAD, offset)]
    for value, error in refused.items():
        lines += _when(_EQUAL, value, [_line(_RETURN, _ERROR + error)])
    return [*lines, _line(_RETURN, _ALLOW)]


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields the first and last of each range of consecutive numbers, in order."""
    first = last = None
    for number in sorted(numbers):
        if first is None or last is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last


def _when(test: int, value: int | None, then: list[bytes], *, otherwise: bool = False) -> list[bytes]:
    """Returns lines that run if a test holds (`otherwise`: if it does not) and are skipped if not."""
    if value is None:
        return []
    passed_over = len(then)
    return [
        _line(test, value, if_true=passed_over) if otherwise else _line(test, value, if_false=passed_over),
        *then,
    ]


def _line(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """Returns one instruction; `if_true` and `if_false` say how many to skip."""
    return struct.pack("<HBBI", code, if_true, if_false, value)
