"""A desktop that takes as much as it gets of what a kernel has for all gets less than half, and its neighbours get theirs."""

from __future__ import annotations

import base64
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.desktops import in_guest, needs_local_desktops, traces
from tests.hostile import greed
from vm_pool.providers.local import LocalProvider

pytestmark = [needs_local_desktops, pytest.mark.slow, pytest.mark.timeout(240)]

HOST = f"test-greed-{os.getpid()}"
GREEDY, NEIGHBOUR = f"{HOST}-0", f"{HOST}-1"
OPTIONS = {"screen_width": 640, "screen_height": 480, "memory_mib": 640, "processes": 256, "disk_mib": 512}
MIB = 1 << 20
MOST_MEMORY = 2 * OPTIONS["memory_mib"] * MIB
"""What the machine may lack at most: the desktop's memory, and as much again for what is not charged, and for other tests."""
SECONDS = 60.0
ATTEMPTS = 3
"""What the host counts is for all: an attempt may be disturbed by another test's machines that start meanwhile."""
PROGRAM = Path(greed.__file__)


def number(path: str, column: int = 0) -> int:
    return int(Path(path).read_text().split()[column])


def sockstat(kind: str, name: str) -> int:
    words = next(line for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith(kind)).split()
    return int(words[words.index(name) + 1])


def _threads() -> int:
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


COUNTED = {
    "pseudo-terminals": (lambda: number("/proc/sys/kernel/pty/nr"), number("/proc/sys/kernel/pty/max")),
    "open files": (lambda: number("/proc/sys/fs/file-nr"), number("/proc/sys/fs/file-max")),
    "threads": (_threads, min(number("/proc/sys/kernel/pid_max"), number("/proc/sys/kernel/threads-max"))),
    "orphans": (lambda: sockstat("TCP:", "orphan"), number("/proc/sys/net/ipv4/tcp_max_orphans")),
    "pages of TCP": (lambda: sockstat("TCP:", "mem"), number("/proc/sys/net/ipv4/tcp_mem", 2)),
    "pages of UDP": (lambda: sockstat("UDP:", "mem"), number("/proc/sys/net/ipv4/udp_mem", 2)),
    "memory": (lambda: -psutil.virtual_memory().available, 2 * MOST_MEMORY),
}
"""What the host counts for all, and how much there can be of it."""

FILES = number("/proc/sys/fs/file-max")
KINDS = {
    # what: (how much the greedy one asks for, how much others get meanwhile)
    "watchers of files": (10 * number("/proc/sys/fs/inotify/max_user_instances"), 60),
    "watched descriptors": (2 * number("/proc/sys/fs/epoll/max_user_watches"), 20_000),
    "pseudo-terminals": (number("/proc/sys/kernel/pty/max"), 100),
    "open files": (FILES, 10_000),
    "descriptors in flight": (FILES, 2_000),
    "files": (10_000_000, 2_000),
    "bytes in files": (6144 * MIB, 64 * MIB),
    "file locks": (10_000_000, 1_000),
    "processes": (number("/proc/sys/kernel/pid_max"), 60),
    "memory": (6144 * MIB, 200 * MIB),
    "pending signals": (10_000_000, 5_000),
    "pipes": (6144 * MIB, 64 * MIB),
    "TCP connections": (6144 * MIB, 16 * MIB),
    "netlink's answers": (6144 * MIB, 4 * MIB),
    "connections that nobody accepts": (6144 * MIB, 16 * MIB),
    "locks of the dead": (2_000_000, 0),
    "access lists": (3072 * MIB, 0),
    "filters of system calls": (20_000, 0),
    "keys of TCP": (3072 * MIB, 0),
    "netlink sockets": (1_000_000, 1_000),
    "connections that nobody has open": (number("/proc/sys/net/ipv4/tcp_max_orphans"), 500),
}


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    provider = LocalProvider(OPTIONS)
    for vm_id in (GREEDY, NEIGHBOUR):
        provider.boot(vm_id)
        bring_program(provider, vm_id)
    yield provider
    for vm_id in (GREEDY, NEIGHBOUR):
        provider.stop(vm_id)
    assert traces(HOST) == []


@pytest.fixture
def greedy(provider: LocalProvider) -> Iterator[LocalProvider]:
    yield provider
    provider.reset(GREEDY)
    bring_program(provider, GREEDY)


def bring_program(provider: LocalProvider, vm_id: str) -> None:
    packed = base64.b64encode(PROGRAM.read_bytes()).decode()
    assert in_guest(provider, vm_id, f"echo {packed} | base64 -d >greed.py; wc -c <greed.py").strip() == str(
        PROGRAM.stat().st_size
    )


def program(what: str, most: int, *, root: bool = True, port: str = "") -> str:
    command = f"python3 greed.py {shlex.quote(what)} {most} {port}"
    return f"echo password | sudo -S -p '' {command}" if root else command


def taken(provider: LocalProvider, what: str, most: int, *, root: bool) -> tuple[socket.socket, int | None]:
    """Has the greedy desktop take; how much it has, None if it was ended, and what to close so that it lets go."""
    in_guest(provider, GREEDY, f"setsid sh -c {shlex.quote(program(what, most, root=root, port='8080'))} >said 2>&1 &")
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            asking = provider.connect(GREEDY, "vlc")
            break
        except OSError:
            assert time.monotonic() < deadline, in_guest(provider, GREEDY, "cat said")
            time.sleep(0.05)
    asking.settimeout(SECONDS)
    with suppress(ConnectionResetError):
        if said := asking.recv(100):
            return asking, int(said)
    return asking, None


def got_inside(provider: LocalProvider, what: str, most: int, *, root: bool) -> str:
    return in_guest(provider, NEIGHBOUR, program(what, most, root=root), seconds=SECONDS).strip()


def got_outside(what: str, most: int) -> str:
    command = [sys.executable, str(PROGRAM), what, str(most)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout.strip()
    assert [str(path) for folder in greed.FOLDERS for path in Path(folder).glob("greed-*")] == []
    return said


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """The most that the host has lost of what it counts, by name; as long as it is looked at."""
    before = {name: count() for name, (count, _) in COUNTED.items()}
    most = dict.fromkeys(COUNTED, 0)
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            for name, (count, _) in COUNTED.items():
                most[name] = max(most[name], count() - before[name])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        done.set()
        looking.join()


@pytest.mark.parametrize(
    ("what", "root"), [*((what, True) for what in KINDS), ("processes", False), ("descriptors in flight", False)]
)
def test_others_have_enough_left(greedy: LocalProvider, what: str, root: bool) -> None:
    most, few = KINDS[what]
    for attempt in range(ATTEMPTS):
        if attempt:
            greedy.reset(GREEDY)
            bring_program(greedy, GREEDY)
        with watched() as lost:
            asking, had = taken(greedy, what, most, root=root)
            with asking:
                greedy.check(NEIGHBOUR)
                inside, outside = got_inside(greedy, what, few, root=root), got_outside(what, few)
        print(f"\n{what}, {root=}: had {had} of {most}; {inside=}, {outside=}", end=" ")
        print({name: f"{value / MIB:.0f} MiB" if name == "memory" else value for name, value in lost.items() if value})

        assert had is None or 0 <= had < most
        assert int(inside) >= few
        assert int(outside) >= few
        too_much = {name: value for name, value in lost.items() if value > COUNTED[name][1] / 2}
        if not too_much:
            break
    assert too_much == {}
