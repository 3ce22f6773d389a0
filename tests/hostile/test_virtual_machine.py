"""What a desktop in a virtual machine may try: an attempt of each class, on one machine that QEMU emulates.

The classes are those that are tried on `local` in full: an agent against the server that tells its score, as the user and as
root; against the host's network; against what host and guests share; and a rollout against the next one on that machine.
"""

from __future__ import annotations

import base64
import os
import shlex
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rollout_tasks.environments.osworld.attestation import check_server
from rollout_tasks.environments.osworld.guest_http import UnusableAnswer
from rollout_tasks.environments.osworld.vm_client import REQUESTS, VMClient, VMUnreachable
from tests.desktops import said_by
from tests.hostile.server_attacks import AS_USER, CLEAN_UP, INTERPRETER, SERVER, SESSION, as_root
from tests.virtual_machines import processes_naming, wait_until
from vm_pool.gate import Gates
from vm_pool.providers.base import connect
from vm_pool.providers.guest_server import DesktopUnwell
from vm_pool.providers.qemu import QemuProvider
from vm_pool.providers.qemu.folders import folder_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VM = f"test-hostile-{os.getpid()}-0"
SECONDS = 240.0
MIB = 1 << 20


class Desk:
    """The machine's desktop, as an agent and as the worker have it."""

    def __init__(self, provider: QemuProvider) -> None:
        self.provider = provider
        self.endpoint = provider.boot(VM)

    def reset(self) -> None:
        """As the pool does between two rollouts."""
        self.endpoint = self.provider.reset(VM)
        self.provider.check(VM)

    def run(self, command: str) -> str:
        """What a command prints."""
        return said_by(connect(self.provider, VM, "control", self.endpoint), command, seconds=SECONDS)

    def state(self) -> list[str]:
        """Who serves and acts, since when; who the user is, and what a script sees."""
        starts = [self.run(f"cut -d' ' -f1,22 /proc/{process}/stat") for process in (SESSION, SERVER, INTERPRETER)]
        return [*starts, self.run("id; pwd; env | sort; python -c 'import pyautogui; print(pyautogui.size())'")]


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    provider = QemuProvider({"screen_width": 1280, "screen_height": 720})
    desk = Desk(provider)
    yield desk
    provider.stop(VM)
    assert processes_naming(VM) == []
    assert not folder_of(VM).exists()


@pytest.fixture(scope="module")
def in_order(desk: Desk) -> list[str]:
    desk.reset()
    return desk.state()


FILLS = "fill the disks"
"""Takes the guest's memory, too, and so belongs to the greedy ones here."""


@pytest.mark.parametrize(
    "attempt", [pytest.param(attempt, id=name) for name, attempt in AS_USER.items() if name != FILLS]
)
def test_a_user_changes_nothing(desk: Desk, in_order: list[str], attempt: str) -> None:
    said = desk.run(f"exec 2>&1; {attempt}")

    assert "worked" not in said, said
    assert "listening" not in said, said
    try:
        assert desk.state() == in_order
        desk.provider.check(VM)
    finally:
        desk.run(CLEAN_UP)


REACH = """
import socket, sys
for host, port in (word.rsplit(":", 1) for word in sys.argv[1:]):
    try:
        socket.create_connection((host, int(port)), 5).close()
        print("reached", host)
    except OSError:
        print("kept")
"""


def test_nothing_of_the_hosts_network_is_reached(desk: Desk) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104 - it is the guest that must not get here
        port = server.getsockname()[1]
        hosts = ["10.0.2.2", "10.0.2.3", "127.0.0.1", "169.254.169.254", "8.8.8.8", "fe80::2", "fec0::2"]
        hosts += [
            one.address for there in psutil.net_if_addrs().values() for one in there if one.family == socket.AF_INET
        ]
        words = " ".join(f"{host}:{port}" for host in hosts)
        ask = f"python3 -c {shlex.quote(REACH)} {words}"
        up = "for one in /sys/class/net/*; do ip link set ${one##*/} up; done"
        said = [desk.run(ask), desk.run(as_root(f"{up}; {ask}"))]

    assert [one.split() for one in said] == [["kept"] * len(hosts)] * 2


def host_counts() -> dict[str, int]:
    """What all on the host share."""
    return {
        "threads": int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2]),
        "files": int(Path("/proc/sys/fs/file-nr").read_text().split()[0]),
        "terminals": int(Path("/proc/sys/kernel/pty/nr").read_text()),
    }


GREED = {
    "processes": as_root("for n in $(seq 3000); do sleep 300 & done"),
    "memory": "python3 -c 'a = []\nwhile True: a.append(b\"x\" * (16 << 20))'",
    "open files": as_root("ulimit -n 60000; python3 -c \"a = [open('/etc/passwd') for _ in range(50000)]\""),
    "terminals": "python3 -c 'import os\na = [os.openpty() for _ in range(2000)]'",
    FILLS: AS_USER[FILLS],
    "a disk": as_root("head -c 1000M /dev/zero >/full"),
}


@pytest.mark.parametrize("command", GREED.values(), ids=GREED.keys())
def test_a_greedy_guest_takes_only_its_own(desk: Desk, command: str) -> None:
    before = host_counts()
    with suppress(OSError, AssertionError, HTTPException):  # the guest may have nothing left to answer with
        desk.run(f"timeout 60 sh -c {shlex.quote(command)}")
    after = host_counts()

    assert all(after[name] - before[name] < 1500 for name in before), (before, after)
    machines = [psutil.Process(int(line.split()[0])) for line in processes_naming(VM) if "qemu-system" in line]
    assert machines
    assert sum(machine.memory_info().rss for machine in machines) < 3500 * MIB
    desk.reset()
    assert desk.run("ls /full 2>/dev/null; pgrep -c sleep").split() == ["0"]


def test_what_a_rollout_left_is_not_there_for_the_next(desk: Desk) -> None:
    desk.reset()
    clean = desk.provider.fingerprint(VM)
    leave = "for one in /etc/cron.d/x /etc/rc.local /usr/lib/guest/python/x.py /home/user/x /tmp/x /boot/x; do echo x >$one; done"
    desk.run(
        as_root(
            f"{leave}; useradd other; echo 'user:other' | chpasswd; hostname other; setsid sleep 900 >/dev/null 2>&1 &"
        )
    )

    desk.reset()

    wait_until(lambda: desk.provider.fingerprint(VM) == clean, seconds=60)  # what starts with a desktop is over
    assert (
        desk.run(f"{leave.replace('echo x >$one', 'ls $one')} 2>/dev/null; getent passwd other; pgrep -x sleep") == ""
    )
    assert "uid=0" in desk.run(as_root("id"))


ANOTHER_SERVER = """
import http.server, os, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, headers, body, times = {
            "/platform": (200, {}, b"Linux", 1),
            "/redirect": (302, {"Location": "http://127.0.0.1:%(port)s/secret"}, b"", 1),
            "/endless": (200, {}, bytes(1 << 20), 1000),
            "/packed": (200, {"Content-Encoding": "gzip"}, bytes(1000), 1),
        }.get(self.path.split("?")[0], (200, {}, b"no picture", 1))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if times == 1:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for _ in range(times):
            self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=os.dup(0))  # process 1 listens, and hands the socket to whom it starts
server.serve_forever()
"""


@pytest.fixture
def replaced(desk: Desk) -> Iterator[tuple[VMClient, list[str]]]:
    """The worker's client of a desktop in which root has put another server in the place of ours; what was asked of the host."""
    asked: list[str] = []

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)

    with ExitStack() as open_things:
        host = open_things.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Host))
        threading.Thread(target=host.serve_forever, args=(0.05,)).start()
        open_things.callback(host.shutdown)
        code = base64.b64encode((ANOTHER_SERVER % {"port": host.server_port}).encode()).decode()
        with suppress(OSError, HTTPException):  # nobody is left who would answer
            place = "/usr/lib/guest/python/server"
            desk.run(
                as_root(f"cd {place} && rm -r __pycache__; echo {code} | base64 -d >__main__.py; kill -9 {SERVER}")
            )
        gates = open_things.enter_context(closing(Gates()))
        gate = gates.open(["control"], lambda purpose: connect(desk.provider, VM, purpose, desk.endpoint))
        open_things.callback(gate.close)
        client = VMClient(gate.endpoint.address, gate.endpoint.ports["control"])
        wait_until(lambda: _said(f"{client.origin}/else") == b"no picture", seconds=60)
        client.open()
        open_things.callback(client.close)
        yield client, asked
    desk.reset()


def _said(url: str) -> bytes:
    with suppress(OSError, HTTPException), urllib.request.urlopen(url, timeout=20) as reply:  # noqa: S310 - at loopback
        return bytes(reply.read())
    return b""


def test_another_server_takes_the_worker_nowhere(desk: Desk, replaced: tuple[VMClient, list[str]]) -> None:
    client, asked = replaced

    with pytest.raises(DesktopUnwell):
        desk.provider.check(VM)
    assert not check_server(SimpleNamespace(vm_id=VM, endpoint=desk.endpoint)), "no host can tell: unattested"
    with pytest.raises(UnusableAnswer, match="more than 64 MiB"):
        REQUESTS.get(f"{client.origin}/endless")
    with pytest.raises(UnusableAnswer, match="which was not asked for"):
        REQUESTS.get(f"{client.origin}/packed")
    with pytest.raises(VMUnreachable, match="was answered with a redirect"):
        REQUESTS.get(f"{client.origin}/redirect")
    assert asked == []
