"""What comes of system calls in a local desktop: those on its list are made, all others are refused, however they are written."""

from __future__ import annotations

import errno
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.desktops import in_guest, needs_local_desktops, traces
from vm_pool.providers.local import LocalProvider

pytestmark = needs_local_desktops

VM = f"test-calls-{os.getpid()}-0"
NUMBERS = {
    "x86_64": {
        "mmap": 9,
        "ioctl": 16,
        "socket": 41,
        "socketpair": 53,
        "setsockopt": 54,
        "clone": 56,
        "fcntl": 72,
        "prctl": 157,
        "setxattr": 188,
        "io_setup": 206,
        "add_key": 248,
        "seccomp": 317,
        "memfd": 319,
    },
    "aarch64": {
        "ioctl": 29,
        "socketpair": 199,
        "clone": 220,
        "prctl": 167,
        "setxattr": 5,
        "seccomp": 277,
        "mmap": 222,
        "socket": 198,
        "setsockopt": 208,
        "fcntl": 25,
        "io_setup": 0,
        "add_key": 217,
        "memfd": 279,
    },
}[platform.machine()] | {"clone3": 435, "statmount": 457, "listmount": 458}
CALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
outcome = libc.syscall(*(ctypes.c_long(int(word)) for word in sys.argv[1:]))
print(ctypes.get_errno() if outcome == -1 else 0)
"""
HIGH = 1 << 32
"""A bit that the kernel does not look at, where a call has a 32-bit argument."""
OF_SOCKETS, FILTER, ROOM, REUSE = 1, 26, 8, 2
LOCK = 37
TCP, MD5_KEYS = 6, 14
SAME_FILES, CHILD = 0x400, 17
OWN_FILTER, LINE_DISCIPLINE = 22, 0x5423
TO_SOCKETS = (0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89A0, 0x89A1)
USUAL_COMMANDS = (
    *(0x5401, 0x5413, 0x541B),  # TCGETS, TIOCGWINSZ, FIONREAD
    *(0x8912, 0x8927, 0x8933),  # SIOCGIFCONF, SIOCGIFHWADDR, SIOCGIFINDEX
    *(0x5422, 0x5424, 0x893F, 0x8942, 0x897F, 0x8984, 0x899F, 0x89A2),  # next to refused ones
    *(0x80045430, 0xFFFFFFFF),  # TIOCGPTN, the last one of all
)

REFUSED = [
    ("statmount", (0, 0, 0, 0), errno.ENOSYS),
    ("listmount", (0, 0, 0, 0), errno.ENOSYS),
    ("clone3", (0, 0), errno.ENOSYS),
    ("io_setup", (0, 0), errno.EPERM),
    ("add_key", (0, 0, 0, 0, 0), errno.EPERM),
    ("mmap", (0, 4096, 0, 0x40022, -1, 0), errno.EPERM),  # huge pages
    ("memfd", (0, 4), errno.EPERM),  # huge pages
    ("memfd", (0, HIGH + 4), errno.EPERM),
    ("socket", (40, 1, 0), errno.EAFNOSUPPORT),  # vsock
    ("socket", (HIGH + 40, 1, 0), errno.EAFNOSUPPORT),
    ("socket", (16, 3, 2), errno.EPROTONOSUPPORT),  # netlink between processes
    ("socket", (16, 3, HIGH + 2), errno.EPROTONOSUPPORT),
    ("setsockopt", (-1, OF_SOCKETS, FILTER, 0, 0), errno.EPERM),
    ("setsockopt", (-1, HIGH + OF_SOCKETS, FILTER, 0, 0), errno.ENOSYS),
    ("setsockopt", (-1, OF_SOCKETS, HIGH + FILTER, 0, 0), errno.ENOSYS),
    ("setsockopt", (-1, OF_SOCKETS, ROOM, 0, 0), 0),  # it is not made, without a word
    ("setsockopt", (-1, OF_SOCKETS, HIGH + ROOM, 0, 0), errno.ENOSYS),
    ("setsockopt", (-1, TCP, MD5_KEYS, 0, 0), errno.EPERM),
    ("setsockopt", (-1, TCP, HIGH + MD5_KEYS, 0, 0), errno.ENOSYS),
    ("socket", (2, 1, 262), errno.EPROTONOSUPPORT),  # MPTCP
    ("socket", (10, 5, 0), errno.ENOSYS),
    ("socket", (2, 3, 1), errno.EPERM),  # raw
    ("socketpair", (2, 1, 132, 0), errno.EOPNOTSUPP),
    ("clone", (SAME_FILES + CHILD, 0, 0, 0, 0), errno.EPERM),
    ("clone", (HIGH + SAME_FILES + CHILD, 0, 0, 0, 0), errno.EPERM),
    ("seccomp", (1, 0, 0), errno.ENOSYS),
    ("prctl", (OWN_FILTER, 2, 0, 0, 0), errno.EINVAL),
    ("prctl", (HIGH + OWN_FILTER, 2, 0, 0, 0), errno.EINVAL),
    ("ioctl", (-1, LINE_DISCIPLINE, 0), errno.EINVAL),
    ("ioctl", (-1, HIGH + LINE_DISCIPLINE, 0), errno.EINVAL),
    *(("ioctl", (-1, command, 0), errno.ENOTTY) for command in TO_SOCKETS),
    *(("ioctl", (-1, HIGH + command, 0), errno.ENOTTY) for command in TO_SOCKETS),
    ("setxattr", (0, 0, 0, 0, 0), errno.EOPNOTSUPP),
    ("fcntl", (-1, LOCK, 0), errno.EINVAL),
    ("fcntl", (-1, HIGH + LOCK, 0), errno.EINVAL),
]


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    provider = LocalProvider({"screen_width": 640, "screen_height": 480, "memory_mib": 1024, "disk_mib": 256})
    provider.boot(VM)
    yield provider
    provider.stop(VM)
    assert traces(VM) == []


def outcomes(provider: LocalProvider, words: list[str]) -> tuple[str, str]:
    """The error of a system call, made by the desktop's root and outside; 0 for none."""
    command = shlex.join(["python3", "-c", CALL, *words])
    inside = in_guest(provider, VM, f"echo password | sudo -S -p '' {command}")
    outside = subprocess.run([sys.executable, "-c", CALL, *words], capture_output=True, text=True, check=True).stdout
    return inside.strip(), outside.strip()


@pytest.mark.parametrize(("name", "arguments", "expected"), REFUSED)
def test_it_is_refused(provider: LocalProvider, name: str, arguments: tuple[int, ...], expected: int) -> None:
    inside, outside = outcomes(provider, [str(word) for word in (NUMBERS[name], *arguments)])
    if outside == str(errno.ENOSYS):
        pytest.skip("this kernel does not have it")
    assert inside == str(expected)
    assert outside != inside


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_usual_sockets_are_made(provider: LocalProvider, family: str, kind: str) -> None:
    protocol = "IPPROTO_TCP" if kind == "SOCK_STREAM" else "IPPROTO_UDP"
    for which in ("0", f"socket.{protocol}"):
        code = f"import socket; socket.socket(socket.{family}, socket.{kind} | socket.SOCK_CLOEXEC, {which}); print('made')"
        assert in_guest(provider, VM, shlex.join(["python3", "-c", code])).strip() == "made"


def test_so_is_what_no_kernel_has_yet(provider: LocalProvider) -> None:
    assert outcomes(provider, ["1000"]) == (str(errno.ENOSYS), str(errno.ENOSYS))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("setsockopt", (-1, OF_SOCKETS, REUSE, 0, 0)),
        ("setsockopt", (-1, TCP, 1, 0, 0)),
        ("fcntl", (-1, 1, 0)),
        *(("ioctl", (-1, command, 0)) for command in USUAL_COMMANDS),
    ],
)
def test_what_programs_need_is_made(provider: LocalProvider, name: str, arguments: tuple[int, ...]) -> None:
    """As these are made for no descriptor at all, the kernel says that of them."""
    words = [str(word) for word in (NUMBERS[name], *arguments)]
    assert outcomes(provider, words) == (str(errno.EBADF), str(errno.EBADF))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the other calls of this processor are not known here")
def test_calls_of_another_architecture_end_the_caller(provider: LocalProvider) -> None:
    """The x32 ABI's getpid; where the kernel has no x32, it would merely fail."""
    command = shlex.join(["python3", "-c", CALL, str(0x40000000 + 39)])
    assert "Bad system call" in in_guest(provider, VM, f"bash -c {shlex.quote(command + '; true')} 2>&1")
