"""Takes as much as it gets of one thing that a kernel has for all, says how much that was, and keeps it.

``python3 greed.py WHAT MOST SECONDS``, or `take` in a program of one's own. It imports nothing but the standard library: desktops,
sandboxes and cells run it as it stands. Where it may, it goes on in more processes, and as more users, when one has no more.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
KEPT: list[Any] = []
"""Whatever must not be let go of."""
NUMBERS = {"x86_64": {"io_setup": 206, "add_key": 248}, "aarch64": {"io_setup": 0, "add_key": 217}}
CALLS = NUMBERS.get(platform.machine(), {})
_FIRST_USER = 2000
_SIGNAL = 40
_PIECE = bytes(1 << 16)

Kind = Callable[[int], int]
KINDS: dict[str, Kind] = {}
"""Each takes as much as it gets, and no more than it is told."""


def take(what: str, most: int) -> int:
    """Takes of one kind; how much that was."""
    return KINDS[what](most)


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
            return total if number else own(most)
        if pid == 0:
            _in_child(own, most - total, number if as_users else None, tell)
        os.close(tell)
        said = os.read(told, 100)
        os.close(told)
        number += 1
        if int(said or b"0") <= 0:
            break
        total += int(said)
    return total


def _in_child(own: Kind, most: int, user: int | None, tell: int) -> None:
    got = 0
    try:
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if user is not None and os.geteuid() == 0:
            os.setresgid(*[_FIRST_USER + user] * 3)
            os.setresuid(*[_FIRST_USER + user] * 3)
        got = own(most)
    finally:
        os.write(tell, str(got).encode())
        os.close(tell)
        signal.pause()
        os._exit(0)


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
        except (BlockingIOError, InterruptedError):
            break
        except OSError as error:
            if error.errno in {errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}:
                break
            raise
    return done


def _filled(most: int, open_one: Callable[[int], Callable[[bytes], int]], each: int) -> int:
    """Bytes that go into one thing after the other, until no more can be opened or nothing goes in."""
    total = 0
    for number in range(1 << 30):
        if total >= most:
            break
        try:
            into = open_one(number)
        except OSError:
            break
        done = _fill(into, min(each, most - total))
        total += done
        if done == 0:
            break
    return total


# Files that are watched


@kind("inotify instances", spread=True, as_users=True)
def _instances(most: int) -> int:
    return _count(lambda _: _checked(libc.inotify_init1(0)), most)


@kind("inotify watches", spread=True, as_users=True)
def _watches(most: int) -> int:
    paths = [os.fsencode(os.path.join(at, name)) for at, _, names in os.walk("/usr/share") for name in names][:20_000]
    opened: list[int] = []

    def one(number: int) -> None:
        if number % len(paths) == 0:
            opened.append(_checked(libc.inotify_init1(0)))
        _checked(libc.inotify_add_watch(opened[-1], paths[number % len(paths)], 0x2))

    return _count(one, most)


@kind("epoll watches", spread=True)
def _epoll(most: int) -> int:
    watched = [os.eventfd(0) for _ in range(200)]

    def one(number: int) -> None:
        if number % len(watched) == 0:
            KEPT.append(select.epoll())
        KEPT[-1].register(watched[number % len(watched)], 1)

    return _count(one, most)


# Descriptors, files, processes


@kind("pseudo-terminals", spread=True)
def _terminals(most: int) -> int:
    return _count(lambda _: KEPT.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)), most)


@kind("open files", spread=True)
def _open_files(most: int) -> int:
    return _count(lambda _: os.open("/dev/null", os.O_RDONLY), most)


@kind("descriptors in flight", spread=True)
def _in_flight(most: int) -> int:
    one = os.open("/dev/null", os.O_RDONLY)
    done = 0
    try:
        while done < most:
            pair = socket.socketpair()
            KEPT.append(pair)
            pair[0].setblocking(False)
            for _ in range(50):
                number = min(200, most - done)
                socket.send_fds(pair[0], [b"x"], [one] * number)
                done += number
                if done >= most:
                    break
    except OSError:
        pass
    return done


def _files_in(folder: str, most: int) -> int:
    place = os.path.join(folder, f"greed-{os.getpid()}")
    try:
        os.mkdir(place)
    except OSError:
        return 0
    return _count(lambda number: os.close(os.open(f"{place}/{number}", os.O_CREAT | os.O_WRONLY)), most)


def _bytes_in(folder: str, most: int) -> int:
    with open(os.path.join(folder, f"greed-{os.getpid()}"), "wb", buffering=0) as file:
        return _fill(file.write, most)


for _folder in ("/var/tmp", "/tmp", "/dev/shm", "/run", "/cell"):
    KINDS[f"files in {_folder}"] = lambda most, folder=_folder: _files_in(folder, most)
    KINDS[f"bytes in {_folder}"] = lambda most, folder=_folder: _bytes_in(folder, most)


@kind("file locks", spread=True)
def _locks(most: int) -> int:
    """Each of one byte, 500 in a file: of many in one file, each takes longer."""
    lock = struct.Struct("hhqqi4x")

    def one(number: int) -> None:
        if number % 500 == 0:
            name = f"lock-{os.getpid()}-{number}"
            KEPT.append(os.open(name, os.O_CREAT | os.O_RDWR))
        fcntl.fcntl(KEPT[-1], fcntl.F_SETLK, lock.pack(fcntl.F_WRLCK, os.SEEK_SET, 4 * (500 - number % 500), 1, 0))

    return _count(one, most)


@kind("processes")
def _processes(most: int) -> int:
    def one(_: int) -> None:
        if os.fork() == 0:
            libc.prctl(1, signal.SIGKILL)
            signal.pause()

    return _count(one, most)


@kind("directory entries")
def _entries(most: int) -> int:
    """Of files that are not there, which the kernel remembers, too."""

    def one(number: int) -> None:
        try:
            os.stat(f"/usr/{number:0200d}")
        except FileNotFoundError:
            pass

    return _count(one, most)


# Memory


@kind("memory", spread=True)
def _memory(most: int) -> int:
    return _count(lambda _: KEPT.append(bytearray(b"x" * (1 << 20))), most >> 20) << 20


@kind("locked memory", spread=True, as_users=True)
def _locked(most: int) -> int:
    def one(_: int) -> None:
        KEPT.append(ctypes.create_string_buffer(1 << 16))
        _checked(libc.mlock(KEPT[-1], 1 << 16))

    return _count(one, most >> 16) << 16


@kind("pipes", spread=True)
def _pipes(most: int) -> int:
    def open_one(_: int) -> Callable[[bytes], int]:
        _reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            fcntl.fcntl(writer, 1031, 1 << 20)  # F_SETPIPE_SZ
        except OSError:
            pass
        return lambda piece: os.write(writer, piece)

    return _filled(most, open_one, 1 << 20)


@kind("System V memory")
def _shared_memory(most: int) -> int:
    libc.shmat.restype = ctypes.c_void_p

    def one(_: int) -> None:
        segment = _checked(libc.shmget(0, 1 << 20, 0o600))
        address = libc.shmat(segment, None, 0)
        ctypes.memset(address, 1, 1 << 20)
        libc.shmdt(ctypes.c_void_p(address))

    return _count(one, most >> 20) << 20


@kind("System V queues")
def _queues(most: int) -> int:
    return _count(lambda _: _checked(libc.msgget(0, 0o600)), most)


@kind("System V semaphores")
def _semaphores(most: int) -> int:
    return _count(lambda _: _checked(libc.semget(0, 1, 0o600)), most)


@kind("POSIX message queues", spread=True, as_users=True)
def _message_queues(most: int) -> int:
    """Bytes, in queues of the size that the kernel gives one that nobody says a size for."""

    def one(number: int) -> None:
        name = f"/greed-{os.getpid()}-{number}".encode()
        _checked(libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None))

    return _count(one, most // 81_920) * 81_920


# Sockets


def _pair(server: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    return client, accepted


def _roomy(one: socket.socket) -> socket.socket:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    one.setblocking(False)
    return one


@kind("TCP buffers", spread=True)
def _tcp(most: int) -> int:
    server = socket.create_server(("127.0.0.1", 0))

    def open_one(_: int) -> Callable[[bytes], int]:
        pair = _pair(server)
        KEPT.append(pair)
        _roomy(pair[1])
        return _roomy(pair[0]).send

    return _filled(min(most, 256 << 20), open_one, 1 << 30)


def _waiting_in(one: socket.socket) -> int:
    """Bytes of the kernel's memory in which something waits at a socket to be read."""
    return int(struct.unpack_from("I", one.getsockopt(socket.SOL_SOCKET, 55, 36))[0])  # SO_MEMINFO


@kind("UDP buffers", spread=True)
def _udp(most: int) -> int:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    total = 0
    while total < min(most, 256 << 20):
        try:
            receiver = _roomy(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        except OSError:
            break
        KEPT.append(receiver)
        receiver.bind(("127.0.0.1", 0))
        for _ in range(300):
            sender.sendto(_PIECE[:32_768], receiver.getsockname())
        if (waiting := _waiting_in(receiver)) == 0:
            break
        total += waiting
    return total


@kind("Unix sockets' buffers", spread=True)
def _unix(most: int) -> int:
    def open_one(_: int) -> Callable[[bytes], int]:
        pair = socket.socketpair()
        KEPT.append(pair)
        return _roomy(pair[0]).send

    return _filled(min(most, 64 << 20), open_one, 1 << 30)


@kind("netlink's answers", spread=True)
def _netlink_answers(most: int) -> int:
    """Nobody reads them."""
    request = struct.pack("=IHHII4x", 20, 18, 0x301, 1, 0)  # which links there are
    total = 0
    while total < min(most, 256 << 20):
        try:
            asking = _roomy(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
        except OSError:
            break
        KEPT.append(asking)
        for _ in range(1000):
            try:
                asking.send(request)
            except OSError:
                break
        total += _waiting_in(asking)
    return total


@kind("netlink between processes", spread=True)
def _netlink_between(most: int) -> int:
    sender = _roomy(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2))

    def open_one(_: int) -> Callable[[bytes], int]:
        receiver = _roomy(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2))
        receiver.bind((0, 0))
        KEPT.append(receiver)
        return lambda piece: sender.sendto(piece, (receiver.getsockname()[0], 0))

    return _filled(min(most, 256 << 20), open_one, 1 << 30)


def _listener(number: int) -> socket.socket:
    return _roomy(socket.create_server((f"127.1.{number % 250}.{os.getpid() % 250 + 1}", 0), backlog=4096))


@kind("connections that nobody accepts", spread=True)
def _not_accepted(most: int) -> int:
    """Bytes in them."""

    def open_one(number: int) -> Callable[[bytes], int]:
        if number % 500 == 0:
            KEPT.append([_listener(number // 500)])
        client = socket.create_connection(KEPT[-1][0].getsockname())
        KEPT[-1].append(client)
        return _roomy(client).send

    return _filled(min(most, 256 << 20), open_one, 1 << 30)


@kind("connections that nobody has open", spread=True)
def _orphans(most: int) -> int:
    def one(number: int) -> None:
        if number % 4000 == 0:
            KEPT.append(_listener(number // 4000))
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_TCP, 8, 120)  # TCP_LINGER2
        client.connect(KEPT[-1].getsockname())
        client.close()

    return _count(one, min(most, 20_000))


@kind("socket filters", spread=True)
def _filters(most: int) -> int:
    """Each a program of 4,096 instructions."""
    program = struct.pack("HBBI", 0, 0, 0, 1) * 4095 + struct.pack("HBBI", 6, 0, 0, 0xFFFF)
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", 4096, ctypes.addressof(buffer))

    def one(_: int) -> None:
        KEPT.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        KEPT[-1].setsockopt(socket.SOL_SOCKET, 26, described)  # SO_ATTACH_FILTER

    return _count(one, min(most, 1000))


# Time and signals


@kind("timers", spread=True, as_users=True)
def _timers(most: int) -> int:
    return _count(lambda _: _checked(libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p()))), most)


@kind("pending signals", spread=True, as_users=True)
def _signals(most: int) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, [_SIGNAL])
    return _count(lambda _: _checked(libc.sigqueue(os.getpid(), _SIGNAL, ctypes.c_void_p(1))), most)


# What nobody in a desktop needs


@kind("keys")
def _keys(most: int) -> int:
    return _count(
        lambda number: _checked(libc.syscall(CALLS["add_key"], b"user", b"greed%d" % number, b"x", 1, -4)), most
    )


@kind("user namespaces")
def _user_namespaces(most: int) -> int:
    return _count(lambda _: _checked(libc.unshare(0x10000000)), min(most, 30))


@kind("mounts")
def _mounts(most: int) -> int:
    return _count(lambda _: _checked(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)), most)


@kind("asynchronous requests", spread=True)
def _asynchronous(most: int) -> int:
    def one(_: int) -> None:
        _checked(libc.syscall(CALLS["io_setup"], 100, ctypes.byref(ctypes.c_ulong(0))))

    return _count(one, most // 100) * 100


@kind("huge pages")
def _huge_pages(most: int) -> int:
    return _count(lambda _: os.memfd_create("greed", 4), most)  # MFD_HUGETLB


def main() -> None:
    """Arguments: what, how much of it at most, how many seconds to keep it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with open("/proc/self/oom_score_adj", "w") as score:  # rather this than the desktop's own server
        score.write("1000")
    os.chdir("/tmp")
    print(take(sys.argv[1], int(sys.argv[2])), flush=True)
    time.sleep(float(sys.argv[3]))


if __name__ == "__main__":
    main()
