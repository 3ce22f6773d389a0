"""Code in a cell that wants out: whatever it tries, it sees nothing of the host, changes nothing there, and reaches nobody."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollout_tasks.cells.cell import CallFailed, CellEnded, Handlers
from rollout_tasks.cells.isolation import CellLimits
from rollout_tasks.cells.template_process import TemplateProcess
from tests.integration.cells.conftest import Inside, Opened

SECRET = "a secret of the host"
TRY = """
import ctypes, os, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    outcome = libc.syscall(number, *arguments)
    return outcome if outcome >= 0 else -ctypes.get_errno()
def attempt(what):
    try:
        return what()
    except BaseException as error:
        return None
"""


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the host and a variable of the worker, both of which hold a secret."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    return file


def tried(inside: Inside, code: str) -> Any:
    return inside.run(f"{TRY}\n{code}")


READS = {
    "its path": "open({secret!r}).read()",
    "a relative path": "open('../../../../../../../..' + {secret!r}).read()",
    "the root of its first process": "open('/proc/1/root' + {secret!r}).read()",
    "its own root in proc": "open('/proc/self/root' + {secret!r}).read()",
    "the environment of its first process": "open('/proc/1/environ').read()",
    "its own environment": "str(dict(os.environ))",
    "the environment as libc has it": "ctypes.string_at(ctypes.c_char_p.in_dll(libc, 'environ'), 1) and str(os.environb)",
    "the passwords of the host": "open('/etc/shadow').read()",
    "the users of the host": "open('/etc/passwd').read()",
    "the machine's id": "open('/etc/machine-id').read()",
    "the host's name": "open('/etc/hostname').read()",
    "root's folder": "str(os.listdir('/root/.ssh'))",
    "folders of users": "str(os.listdir('/home'))",
    "the project's settings": "open({repository!r} + '/.env').read()",
    "the project's history": "str(os.listdir({repository!r} + '/.git'))",
    "variable data": "str(os.listdir('/var'))",
    "run-time data": "str(os.listdir('/run'))",
    "kernel settings": "str(os.listdir('/sys'))",
    "processes": "str(os.listdir('/proc'))",
    "kernel messages": "open('/dev/kmsg').read()",
    "memory": "open('/dev/mem', 'rb').read(1)",
    "the first disk": "str([name for name in os.listdir('/dev') if name[:2] in ('vd', 'sd', 'nv')] or None[0])",
    "shared memory": "str(os.listdir('/dev/shm'))",
    "terminals": "str(os.listdir('/dev/pts'))",
    "what was open before the fork": "str([os.readlink(f'/proc/self/fd/{{n}}') for n in range(3, 30)])",
    "a symbolic link": "(os.symlink({secret!r}, 'link'), open('link').read())[1]",
    "a hard link": "(os.link({secret!r}, 'hard'), open('hard').read())[1]",
    "sqlite": "__import__('sqlite3').connect('file:' + {secret!r} + '?mode=ro', uri=True).execute('select 1').fetchall()",
    "another program": "subprocess.run(['cat', {secret!r}], capture_output=True, check=True).stdout.decode()",
    "the shell": "subprocess.run('cat /etc/shadow /proc/*/environ', shell=True, capture_output=True, check=True).stdout.decode()",
    "an address of the host's server": "socket.create_connection(('127.0.0.1', {port}), 2).recv(100).decode()",
    "another loopback address": "socket.create_connection(('127.0.0.2', {port}), 2).recv(100).decode()",
    "the IPv6 loopback": "socket.create_connection(('::1', {port}), 2).recv(100).decode()",
    "a mapped address": "socket.create_connection(('::ffff:127.0.0.1', {port}), 2).recv(100).decode()",
    "any address": "socket.create_connection(('0.0.0.0', {port}), 2).recv(100).decode()",
    "the abstract socket": "abstract({abstract!r})",
    "the internet": "socket.create_connection(('1.1.1.1', 53), 2)",
    "the metadata service": "socket.create_connection(('169.254.169.254', 80), 2)",
    "DNS": "socket.gethostbyname('example.org')",
    "a template's socket": "unix({template!r})",
    "docker's socket": "unix('/var/run/docker.sock')",
    "the system bus": "unix('/run/dbus/system_bus_socket')",
    "netlink routes": "routes()",
}


@pytest.mark.parametrize("way", READS)
def test_nothing_of_the_host_is_read(way: str, inside: Inside, secret: Path, template: TemplateProcess) -> None:
    helpers = """
def abstract(name):
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(2)
        one.connect('\\0' + name)
        return one.recv(100).decode()
def unix(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(2)
        one.connect(path)
        return 'connected'
def routes():
    import struct
    with socket.socket(16, socket.SOCK_RAW, 0) as one:
        one.settimeout(2)
        one.send(struct.pack('=IHHII', 20, 18, 0x301, 1, 0) + b'\\0' * 4)
        found = one.recv(65536)
        names = [name for name in (b'eth0', b'enp', b'wlan', b'docker0') if name in found]
        return names or None[0]
"""
    name = f"rollouts-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as here:
        here.bind(f"\0{name}")
        here.listen()
        code = READS[way].format(
            secret=str(secret),
            repository=str(Path(__file__).resolve().parent.parent.parent),
            port=server.getsockname()[1],
            abstract=name,
            template=str(template._folder.path / "template"),
        )
        found = tried(
            inside, f"{helpers}\nfound = attempt(lambda: {code})\nresult = None if found is None else str(found)"
        )

    if way in {"its own environment", "the environment as libc has it"}:
        assert found is not None
        assert SECRET not in found
        assert "REDIS" not in found
        assert "OPENAI" not in found
    else:
        assert found is None


CHANGES = {
    "a file at the root": "open('/pwned', 'w')",
    "a file in a library": "open(os.__file__, 'a')",
    "a file of the project": "open({repository!r} + '/rollout_tasks/pwned.py', 'w')",
    "a file among the programs": "open('/usr/bin/pwned', 'w')",
    "a file in etc": "open('/etc/pwned', 'w')",
    "the table of hosts": "open('/etc/hosts', 'w')",
    "a mount": "called(165, b'none', b'/cell', b'tmpfs', 0, None)",
    "a mount over the root": "called(165, b'/cell', b'/', None, 4096, None)",
    "the root made writable": "called(165, b'none', b'/', None, 32 | 4096, None)",
    "an unmounting": "called(166, b'/cell', 2)",
    "another root": "called(155, b'/cell', b'/cell')",
    "chroot": "os.chroot('/cell')",
    "open_tree": "called(428, -100, b'/usr', 1)",
    "fsopen": "called(430, b'tmpfs', 0)",
    "mount_setattr": "called(442, -100, b'/', 0, b'0' * 32, 32)",
    "statmount": "called(457, b'0' * 32, b'0' * 64, 64, 0)",
    "listmount": "called(458, b'0' * 32, b'0' * 64, 8, 0)",
    "a user namespace": "called(272, 0x10000000)",
    "a namespace of mounts": "called(272, 0x20000)",
    "a child with a user namespace": "called(56, 0x10000011, 0, 0, 0, 0)",
    "clone3": "called(435, b'0' * 88, 88)",
    "somebody else's namespace": "called(308, 0, 0)",
    "being root": "os.setuid(0)",
    "being root's group": "os.setgid(0)",
    "root's files": "os.chown('/cell', 0, 0)",
    "a file beside its folder": "open('/cell/../tmp2', 'w')",
    "a program that makes root": "made_suid()",
    "a device": "os.mknod('disk', 0o60666, os.makedev(254, 0))",
    "capabilities": "called(126, b'0' * 8, b'0' * 24)",
    "the time": "__import__('time').clock_settime(0, 1)",
    "the host's name": "socket.sethostname('pwned')",
    "kernel modules": "called(175, b'', 0, b'')",
    "another kernel": "called(246, 0, 0, 0, 0)",
    "the machine's end": "called(169, 0xfee1dead, 672274793, 0x1234567)",
    "swap": "called(167, b'/cell/x', 0)",
    "BPF": "called(321, 0, b'0' * 64, 64)",
    "performance counters": "called(298, b'0' * 64, 0, -1, -1, 0)",
    "io_uring": "called(425, 8, b'0' * 120)",
    "userfaultfd": "called(323, 0)",
    "keyrings": "called(250, 0, 0)",
    "adding keys": "called(248, b'user', b'x', b'y', 1, -3)",
    "tracing its template": "called(101, 16, 2, 0, 0)",
    "another's memory": "called(310, 2, 0, 0, 0, 0, 0)",
    "vsock": "socket.socket(40, socket.SOCK_STREAM)",
    "raw packets": "socket.socket(17, socket.SOCK_RAW, 768)",
    "raw IP": "socket.socket(2, socket.SOCK_RAW, 1)",
    "bluetooth": "socket.socket(31, socket.SOCK_RAW)",
    "crypto sockets": "socket.socket(38, socket.SOCK_SEQPACKET)",
    "shared memory": "called(29, 1234, 4096, 0o1666)",
    "semaphores": "called(64, 1234, 1, 0o1666)",
    "message queues": "called(240, b'pwned', 0o102, 0o600, None)",
    "anonymous files": "called(319, b'x', 0)",
    "memory to share": "__import__('mmap').mmap(-1, 4096)",
    "memory of a device": "open('/dev/zero', 'r+b')",
    "watching files": "called(253)",
    "fanotify": "called(300, 0, 0)",
    "file handles": "called(303, -100, b'/usr', b'0' * 128, b'0' * 4, 0)",
    "opening by handle": "called(304, -100, b'0' * 128, 0)",
    "the personality": "called(135, 0x0040000)",
    "ports of the machine": "called(172, 3)",
    "more memory": "__import__('resource').setrlimit(2, (1 << 40, 1 << 40))",
    "more processes": "__import__('resource').setrlimit(6, (100_000, 100_000))",
    "more files": "__import__('resource').setrlimit(7, (100_000, 100_000))",
    "a better place in line": "os.setpriority(0, 0, -20)",
    "real-time": "os.sched_setscheduler(0, 1, os.sched_param(50))",
    "memory locked": "called(149, ctypes.create_string_buffer(1 << 20), 1 << 20)",
    "dropping caches": "open('/proc/sys/vm/drop_caches', 'w')",
    "core dumps into programs": "open('/proc/sys/kernel/core_pattern', 'w')",
    "the network's settings": "__import__('fcntl').ioctl(socket.socket(), 0x8914, b'lo' + b'\\0' * 38)",
    "a port below 1024": "socket.create_server(('127.0.0.1', 80))",
}


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_is_changed(what: str, inside: Inside) -> None:
    helpers = """
def called(number, *arguments):
    outcome = call(number, *arguments)
    if outcome < 0:
        raise OSError(-outcome, 'refused')
    return outcome
def made_suid():
    import shutil
    shutil.copy('/usr/bin/id', 'id')
    os.chmod('id', 0o4777)
    return 'uid=0' in subprocess.run(['./id'], capture_output=True, text=True).stdout or None[0]
"""
    code = (
        CHANGES[what].format(repository=str(Path(__file__).resolve().parent.parent.parent))
        if "{" in CHANGES[what]
        else CHANGES[what]
    )
    found = tried(
        inside, f"{helpers}\ntry:\n    {code}\n    result = 'done'\nexcept BaseException as error:\n    result = None"
    )

    assert found is None


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("socket.socket(2, socket.SOCK_STREAM, 132)", errno.EPROTONOSUPPORT),  # made, where the host has the module
        ("socket.socket(2, socket.SOCK_STREAM, 300)", errno.EPROTONOSUPPORT),  # without the filter EINVAL
        ("socket.socket(2, socket.SOCK_SEQPACKET)", errno.EPROTONOSUPPORT),  # ESOCKTNOSUPPORT
        ("socket.socket(10, socket.SOCK_RDM, 132)", errno.EPROTONOSUPPORT),  # ESOCKTNOSUPPORT
        ("socket.socketpair(2, socket.SOCK_SEQPACKET)", errno.EAFNOSUPPORT),  # ESOCKTNOSUPPORT
        ("__import__('mmap').mmap(-1, 2 << 20, 0x40022)", errno.EPERM),  # huge pages: ENOMEM, where none are reserved
        ("__import__('fcntl').fcntl(open('/etc/ld.so.cache', 'rb'), 1024, 0)", errno.EINVAL),  # a lease: EACCES
    ],
)
def test_the_filter_refuses_what_the_kernel_may_allow(code: str, error: int, inside: Inside) -> None:
    """With another error than the kernel's own, which it gives after it has looked for a module, or to some users only."""
    assert tried(inside, f"try:\n    {code}\nexcept OSError as error:\n    result = error.errno") == error


def test_no_command_to_a_socket_has_the_host_load_a_module(inside: Inside) -> None:
    """The filter says so even of no descriptor at all, and lets all other commands through to the kernel, which says that."""
    outcomes = tried(
        inside,
        "commands = [0x8940, 0x8941, 0x8982, 0x8983, 0x89a0, 0x89a1, 0x8912, 0x5401]\n"
        "result = [call(16, -1, command, 0) for command in commands]",
    )

    assert outcomes == [-errno.ENOTTY] * 6 + [-errno.EBADF] * 2


def test_usual_commands_to_devices_and_sockets_are_made(inside: Inside) -> None:
    outcomes = tried(
        inside,
        "import array, fcntl\n"
        "one, other = socket.socketpair()\n"
        "other.send(b'seven b')\n"
        "waiting = array.array('i', [0])\n"
        "fcntl.ioctl(one, 0x541b, waiting)\n"  # FIONREAD
        "room = ctypes.create_string_buffer(400)\n"
        "interfaces = bytearray((400).to_bytes(8, 'little') + ctypes.addressof(room).to_bytes(8, 'little'))\n"
        "fcntl.ioctl(socket.socket(), 0x8912, interfaces)\n"  # SIOCGIFCONF
        "def of_a_terminal(command):\n"
        "    return call(16, os.open('/dev/null', os.O_RDWR), command, room)\n"
        "result = [waiting[0], room.value.decode(), of_a_terminal(0x5401), of_a_terminal(0x5413)]",  # TCGETS, TIOCGWINSZ
    )

    assert outcomes == [7, "lo", -errno.ENOTTY, -errno.ENOTTY]


def test_its_user_is_nobodys(inside: Inside, template: TemplateProcess) -> None:
    users = tried(inside, "result = [*os.getresuid(), *os.getresgid(), *os.getgroups()]")

    assert 0 not in users
    assert len(set(users)) == 1
    if template._way.as_root:
        assert users[0] > 1 << 20


def test_it_has_no_rights_and_gains_none(inside: Inside) -> None:
    status = Path(f"/proc/{inside.cell._watch._pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)

    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("kind", ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"])
def test_two_cells_share_no_namespace(kind: str, opened: Opened) -> None:
    one, other = (Path(f"/proc/{opened().cell._watch._pid}/ns/{kind}").readlink() for _ in range(2))

    assert Path(f"/proc/self/ns/{kind}").readlink() not in ({one, other} if kind not in {"user", "cgroup"} else set())
    assert kind in {"user", "cgroup"} or one != other


def test_a_neighbour_is_not_seen_and_not_touched(opened: Opened) -> None:
    one, other = opened(), opened()
    one.run(
        "open('mine', 'w').write('x')\nimport socket\nkept = socket.create_server(('127.0.0.1', 7777))\nservice.kept = kept"
    )

    assert tried(other, "result = os.path.exists('/cell/mine')") is False
    assert (
        tried(other, "result = attempt(lambda: socket.create_connection(('127.0.0.1', 7777), 2) and 'there')") is None
    )
    tried(
        other, "for number in range(2, 400):\n    attempt(lambda: os.kill(number, 9))\nattempt(lambda: os.kill(-1, 9))"
    )
    assert one.run("result = 'well'") == "well"


TOO_MUCH: dict[str, tuple[str, float]] = {
    "processes": (
        "import time\nmade = 0\ntry:\n    while made < 400:\n        if os.fork() == 0:\n            time.sleep(30)\n"
        "        made += 1\nexcept OSError: pass\ntime.sleep(2)\nresult = made",
        128,
    ),
    "threads": (
        "import threading, time\nmade = 0\ntry:\n    while made < 400:\n"
        "        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n"
        "        made += 1\nexcept RuntimeError: pass\ntime.sleep(2)\nresult = made",
        128,
    ),
    "files": (
        "made = 0\ntry:\n    while True:\n        open(f'file{made}', 'w').close()\n        made += 1\n"
        "except OSError: pass\nresult = made",
        20_000,
    ),
    "open files": (
        "kept = []\ntry:\n    while True: kept.append(open('/dev/null'))\nexcept OSError: pass\nresult = len(kept)",
        512,
    ),
    "pipes": ("kept = []\ntry:\n    while True: kept.append(os.pipe())\nexcept OSError: pass\nresult = len(kept)", 256),
    "timers": (
        "made = 0\nwhile made < 5000 and call(222, 0, None, ctypes.byref(ctypes.c_int())) >= 0: made += 1\nresult = made",
        256,
    ),
    "one file": (
        "made = 0\nf = open('big', 'wb')\ntry:\n    while True:\n        f.write(bytes(1 << 20)); f.flush()\n        made += 1\n"
        "except OSError: pass\nresult = made",
        64,
    ),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_it_may_have_of_each_is_limited(what: str, opened: Opened, template: TemplateProcess) -> None:
    code, most = TOO_MUCH[what]
    inside = opened(limits=CellLimits(folder_bytes=64 << 20))

    if what in {"processes", "threads"} and not template._way.as_root:
        # Root's limit of processes does not hold in a user namespace of root's.
        with pytest.raises(CellEnded, match="it had more than 128 processes and threads"):
            tried(inside, code)
    else:
        assert 0 < tried(inside, code) <= most


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("kept = [socket.socketpair() for _ in range(200)]", "more than 256 sockets"),
        (
            "server = socket.create_server(('127.0.0.1', 0))\n"
            "kept = [socket.create_connection(server.getsockname()) for _ in range(80)]",
            "of TCP",
        ),
        (
            "server = socket.create_server(('::1', 0), family=socket.AF_INET6)\n"
            "kept = [socket.create_connection(server.getsockname()[:2]) for _ in range(80)]",
            "of TCP",
        ),
        ("kept = [bytearray(b'x' * (50 << 20)) for _ in range(10)]", "MiB of memory"),
        (
            "import mmap\nkept = [mmap.mmap(-1, 4096, 0x22, 1 + number % 2) for number in range(40_000)]\n"
            "for _ in range(3):\n    if os.fork() == 0: break",
            "more than 100000 mappings of memory",
        ),
    ],
)
def test_too_much_of_what_all_share_ends_it(code: str, why: str, opened: Opened) -> None:
    inside = opened(limits=CellLimits(memory_bytes=400 << 20))

    with pytest.raises((CellEnded, CallFailed)) as raised:
        tried(inside, f"{code}\n__import__('time').sleep(30)")

    assert why in str(raised.value) or "MemoryError" in getattr(raised.value, "kind", "")


def test_its_locks_of_files_take_no_memory_of_the_kernel(inside: Inside) -> None:
    tried(
        inside,
        "import fcntl\nservice.kept = open('locked', 'w')\n"
        "for number in range(100): fcntl.lockf(service.kept, fcntl.LOCK_EX, 1, 2 * number)",
    )
    owners = [line.split()[-4] for line in Path("/proc/locks").read_text().splitlines()]

    assert str(inside.cell._watch._pid) not in owners


@pytest.mark.parametrize(
    "answer",
    [
        "channel.send({'value': 1, 'answer': 10**30})",
        "channel.send({'ask': 'x' * 1_000_000, 'arguments': {}})",
        "channel.send({'ask': 'good', 'arguments': {'value': 10**4000}})",
        "channel.send({'ask': ['good'], 'arguments': [1]})",
        "channel.send({'ask': 'good', 'arguments': {'value': 1, '__class__': 2}})",
        "channel.send({'tell': {}}, [b'x'] * 10)",
        "for _ in range(10_000): channel.send({'tell': 'nobody'}, [b'x' * 1000])",
        "channel._send_frame(b'b', b'')",
        "for _ in range(10_000): channel._send_frame(b'b', b'x' * 100)",
        "channel._send_frame(b'm', b'{\"value\": ' + b'9' * 5000 + b'}')",
        "channel._send_frame(b'm', b'{\"value\": NaN, \"answer\": 1}')",
        "channel._send_frame(b'm', b'\\xff\\xfe{}')",
        "channel._send_frame(b'm', b'{\"a\":' * 100_000)",
        "channel._send_frame(b'x', b'')",
        "channel.socket.sendmsg([b'm\\0\\0\\0\\2{}'], [(1, 1, (2).to_bytes(4, 'little'))])",
    ],
)
def test_no_message_hurts_the_worker(answer: str, inside: Inside) -> None:
    worker = psutil.Process()
    before, descriptors = worker.memory_info().rss, worker.num_fds()

    try:
        value = inside.run(answer, Handlers({"good": lambda value: (value, None)}, {}))
    except (CellEnded, CallFailed):
        value = None

    assert value is None
    assert worker.memory_info().rss - before < 300 << 20
    assert worker.num_fds() <= descriptors


def test_a_cell_that_says_nothing_is_waited_for_no_longer_than_asked(inside: Inside) -> None:
    import signal

    class Late(BaseException):
        pass

    def ring(*_: object) -> None:
        raise Late

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 1)
    began = time.monotonic()
    with pytest.raises(Late):
        inside.run("channel.socket.send(b'm\\0\\0\\1\\0half')\nimport time\ntime.sleep(600)")
    inside.cell.close()

    assert time.monotonic() - began < 5
