"""Takes as much as it gets of one thing that a kernel has for all, and keeps it until nobody listens any more.

``python3 greed.py WHAT MOST`` says how much that was and ends; with a port at the end it waits there first for somebody who
connects, takes, tells that one, and keeps all until the connection ends. It imports nothing but the standard library. Where it may,
it goes on in more processes, and as more users, when one has no more.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
KEPT: list[Any] = []
"""Whatever must not be let go of."""
LEFT: list[Callable[[], object]] = []
"""What removes things that would outlive this program."""
_FIRST_USER = 2000
_SIGNAL = 40
_PIECE = bytes(1 << 16)
_FULL = (errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN)

Kind = Callable[[int], int]
KINDS: dict[str, Kind] = {}
"""Each takes as much as it gets, and no more than it is told."""


def kind(name: str, *, spread: bool = False, as_users: bool = False) -> Callable[[Kind], Kind]:
    """Makes a function known by a name.

    Args:
        name: Of what it takes.
        spread: Whether more processes get more.
        as_users: Whether more users do.
    """

    def make(own: Kind) -> Kind:
        KINDS[name] = (lambda most: _spread(own, most, as_users)) if spread else own
        return own

    return make


def _spread(own: Kind, most: int, as_users: bool) -> int:
    """What several processes get together: each takes what it can, until one gets nothing."""
    total, number = 0, 0
    while total < most:
        try:
            told, tell = os.pipe()
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            _in_child(own, most - total, number if as_users else None, tell)
        os.close(tell)
        got = int(os.read(told, 100) or b"0")  # nothing, if it was killed for its greed
        os.close(told)
        total, number = total + got, number + 1
        if got == 0:
            break
    return total


def _in_child(own: Kind, most: int, user: int | None, tell: int) -> None:
    got = 0
    try:
        if user is not None and os.geteuid() == 0:
            os.setresgid(*[_FIRST_USER + user] * 3)
            os.setresuid(*[_FIRST_USER + user] * 3)
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        got = own(most)
    finally:
        os.write(tell, str(got).encode())
        os.close(tell)
        while True:
            signal.pause()


def _count(one: Callable[[int], object], most: int) -> int:
    """How often something can be done before it is refused."""
    for done in range(most):
        try:
            one(done)
        except (OSError, MemoryError):
            return done
    return most


def _checked(outcome: int) -> int:
    if outcome < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return outcome


def _fill(write: Callable[[bytes], int], most: int) -> int:
    """Bytes that go in before it is full."""
    done = 0
    while done < most:
        try:
            done += write(_PIECE[: most - done])
        except OSError as error:
            if error.errno not in _FULL:
                raise
            break
    return done


def _filled(most: int, open_one: Callable[[int], Callable[[bytes], int]]) -> int:
    """Bytes that go into one thing after the other, until no more can be opened or nothing goes in."""
    total, number = 0, 0
    while total < most:
        try:
            done = _fill(open_one(number), most - total)
        except OSError:
            break
        if done == 0:
            break
        total, number = total + done, number + 1
    return total


# Files


@kind("watchers of files", spread=True, as_users=True)
def _watchers(most: int) -> int:
    return _count(lambda _: _checked(libc.inotify_init1(0)), most)


@kind("watched descriptors", spread=True)
def _epoll(most: int) -> int:
    watched = [os.eventfd(0) for _ in range(200)]

    def one(number: int) -> None:
        if number % len(watched) == 0:
            KEPT.append(select.epoll())
        KEPT[-1].register(watched[number % len(watched)], 1)

    return _count(one, most)


@kind("pseudo-terminals", spread=True)
def _terminals(most: int) -> int:
    return _count(lambda _: os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY), most)


@kind("open files", spread=True)
def _open_files(most: int) -> int:
    return _count(lambda _: os.open("/dev/null", os.O_RDONLY), most)


@kind("descriptors in flight", spread=True)
def _in_flight(most: int) -> int:
    one = os.open("/dev/null", os.O_RDONLY)

    def send(number: int) -> None:
        if number % 50 == 0:
            KEPT.append(socket.socketpair())
            KEPT[-1][0].setblocking(False)
        socket.send_fds(KEPT[-1][0], [b"x"], [one])

    return _count(send, most)


FOLDERS = ("/var/tmp", "/tmp", "/dev/shm", "/run")
"""In each of the file systems that there are."""


def _folders() -> list[str]:
    """Where files can be made."""
    made = []
    for folder in FOLDERS:
        place = os.path.join(folder, f"greed-{os.getpid()}")
        try:
            os.mkdir(place)
        except OSError:
            continue
        made.append(place)
        LEFT.append(lambda place=place: shutil.rmtree(place))
    return made


@kind("files")
def _files(most: int) -> int:
    total = 0
    for place in _folders():
        make = lambda number, at=place: os.close(os.open(f"{at}/{number}", os.O_CREAT | os.O_WRONLY))  # noqa: E731
        total += _count(make, most - total)
    return total


@kind("bytes in files")
def _bytes(most: int) -> int:
    total = 0
    for place in _folders():
        with open(os.path.join(place, "bytes"), "wb", buffering=0) as file:
            total += _fill(file.write, most - total)
    return total


@kind("file locks", spread=True)
def _locks(most: int) -> int:
    """Each of one byte, 500 in a file: of many in one file, each takes longer."""
    lock = struct.Struct("hhqqi4x")

    def one(number: int) -> None:
        if number % 500 == 0:
            KEPT.append(os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600))
        fcntl.fcntl(KEPT[-1], fcntl.F_SETLK, lock.pack(fcntl.F_WRLCK, os.SEEK_SET, 4 * (500 - number % 500), 1, 0))

    return _count(one, most)


@kind("locks of the dead", spread=True)
def _locks_of_the_dead(most: int) -> int:
    """Of processes that have the same files as this one, so that their locks stay when they end."""
    lock = struct.Struct("hhqqi4x")
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    files = [os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600) for _ in range(1000)]

    def one(number: int) -> None:
        if _checked(libc.syscall(clone, 0x400 | signal.SIGCHLD, 0, 0, 0, 0)) == 0:
            for each in range(5000 * number, 5000 * (number + 1)):
                fcntl.fcntl(files[each % 1000], fcntl.F_SETLK, lock.pack(fcntl.F_WRLCK, 0, 2 * (each // 1000), 1, 0))
            os._exit(0)
        os.wait()

    return 5000 * _count(one, most // 5000)


@kind("access lists")
def _access_lists(most: int) -> int:
    """Bytes of lists of who may do what with a file, which each file of a folder has from it."""
    users = 4000
    entries = [(1, 7, -1), *((2, 7, 1000 + user) for user in range(users)), (4, 7, -1), (16, 7, -1), (32, 7, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    total = 0
    for place in _folders():
        try:
            os.setxattr(place, "system.posix_acl_default", acl)
        except OSError:
            continue
        make = lambda number, at=place: os.close(os.open(f"{at}/{number}", os.O_CREAT | os.O_WRONLY, 0o666))  # noqa: E731
        total += len(acl) * _count(make, (most - total) // len(acl))
    return total


# Processes, memory, signals


class _Line(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("true", ctypes.c_ubyte),
        ("false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.POINTER(_Line)))


@kind("filters of system calls", spread=True)
def _filters(most: int) -> int:
    """Each allows everything, is as long as may be, and stays with a descriptor when its thread is gone."""
    length = 4000
    lines = (_Line * length)(*[_Line(0x34, 0, 0, 0x12345)] * length)
    lines[0] = lines[length - 1] = _Line(0x06, 0, 0, 0x7FFF0000)
    program = _Filter(length, lines)
    seccomp = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
    libc.prctl(38, 1, 0, 0, 0)
    made = [0]

    def in_thread() -> None:
        for flags in (0, 0, 0, 0, 0, 8):
            if libc.syscall(seccomp, 1, flags, ctypes.byref(program)) < 0:
                return
            made[0] += 1

    def one(_: int) -> None:
        before = made[0]
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
        if made[0] < before + 6:
            raise BlockingIOError(errno.EAGAIN, "no more")

    _count(one, most // 6)
    return made[0]


@kind("processes")
def _processes(most: int) -> int:
    parent = os.getpid()

    def one(_: int) -> None:
        if os.fork() == 0:
            libc.prctl(1, signal.SIGKILL)
            if os.getppid() == parent:
                signal.pause()
            os._exit(0)

    return _count(one, most)


@kind("memory", spread=True)
def _memory(most: int) -> int:
    return _count(lambda _: KEPT.append(bytearray(b"x" * (1 << 20))), most >> 20) << 20


@kind("pending signals", spread=True, as_users=True)
def _signals(most: int) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, [_SIGNAL])
    return _count(lambda _: _checked(libc.sigqueue(os.getpid(), _SIGNAL, ctypes.c_void_p(1))), most)


# What is sent and not received: bytes


@kind("pipes", spread=True)
def _pipes(most: int) -> int:
    def open_one(_: int) -> Callable[[bytes], int]:
        _reader, writer = os.pipe()
        os.set_blocking(writer, False)
        return lambda piece: os.write(writer, piece)

    return _filled(most, open_one)


def _roomy(one: socket.socket) -> socket.socket:
    KEPT.append(one)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    one.setblocking(False)
    return one


def _waiting_in(one: socket.socket) -> int:
    """Bytes of the kernel's memory in which something waits at a socket to be read."""
    return int(struct.unpack_from("I", one.getsockopt(socket.SOL_SOCKET, 55, 36))[0])  # SO_MEMINFO


@kind("netlink sockets", spread=True)
def _netlink_sockets(most: int) -> int:
    return _count(lambda _: KEPT.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)), most)


@kind("keys of TCP", spread=True)
def _keys_of_tcp(most: int) -> int:
    """Bytes of the keys that sockets have for their peers' signatures."""
    key = struct.Struct("HH4s120xBBHI80s")

    def open_one(_: int) -> Callable[[bytes], int]:
        KEPT.append(socket.socket())
        peers = iter(range(1 << 20))

        def add(_: bytes) -> int:
            address = struct.pack(">I", 0x0A000000 + next(peers))
            KEPT[-1].setsockopt(socket.IPPROTO_TCP, 14, key.pack(2, 0, address, 0, 0, 8, 0, b"k" * 8))
            return 150

        return add

    try:
        return _filled(most, open_one)
    except PermissionError:
        return 0


@kind("TCP connections", spread=True)
def _tcp(most: int) -> int:
    server = socket.create_server(("127.0.0.1", 0))

    def open_one(_: int) -> Callable[[bytes], int]:
        client = _roomy(socket.create_connection(server.getsockname()))
        _roomy(server.accept()[0])
        return client.send

    return _filled(most, open_one)


@kind("netlink's answers", spread=True)
def _netlink(most: int) -> int:
    request = struct.pack("=IHHII4x", 20, 18, 0x301, 1, 0)  # which links there are

    def open_one(_: int) -> Callable[[bytes], int]:
        asking = _roomy(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))

        def ask(_: bytes) -> int:
            before = _waiting_in(asking)
            asking.send(request)
            if (more := _waiting_in(asking) - before) <= 0:
                raise BlockingIOError(errno.EAGAIN, "it was dropped")
            return more

        return ask

    return _filled(most, open_one)


def _listener(number: int) -> socket.socket:
    return _roomy(socket.create_server((f"127.1.{number % 250}.{os.getpid() % 250 + 1}", 0), backlog=4096))


@kind("connections that nobody accepts", spread=True)
def _not_accepted(most: int) -> int:
    listener = _listener(0)
    return _filled(most, lambda _: _roomy(socket.create_connection(listener.getsockname())).send)


@kind("connections that nobody has open", spread=True)
def _orphans(most: int) -> int:
    def one(number: int) -> None:
        if number % 4000 == 0:
            _listener(number // 4000)
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_TCP, 8, 120)  # TCP_LINGER2
        client.connect(KEPT[-1].getsockname())
        client.close()

    return _count(one, most)


def main() -> None:
    """Arguments: what, how much of it at most, and where it is asked for."""
    what, most = sys.argv[1], int(sys.argv[2])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with open("/proc/self/oom_score_adj", "w") as score:  # rather this than the desktop's own server
        score.write("1000")
    os.chdir("/tmp")
    if len(sys.argv) > 3:
        with socket.create_server(("127.0.0.1", int(sys.argv[3]))) as server:
            asking, _ = server.accept()
        asking.sendall(b"%d\n" % KINDS[what](most))
        asking.recv(1)
    else:
        print(KINDS[what](most))
    for remove in LEFT:
        remove()


if __name__ == "__main__":
    main()
