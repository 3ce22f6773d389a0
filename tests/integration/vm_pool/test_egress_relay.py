"""The relay in a network namespace of its own: what it lets through, for how long, and how much."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops
from vm_pool.egress import exits
from vm_pool.errors import ProviderError
from vm_pool.providers.base import check_available
from vm_pool.providers.local import LocalProvider

pytestmark = needs_local_desktops

PLAY = """
import contextlib, os, socket, subprocess, sys, threading, time
from vm_pool import descriptor_limit, namespaces
from vm_pool.egress import parse_policy, relay
from vm_pool.egress.exits import make_exit, make_interface
from vm_pool.providers.qemu.internet_access import InternetAccess

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["ip", "route", "add", "local", "93.184.216.0/24", "dev", "lo"], check=True)

@contextlib.contextmanager
def guest_namespace():
    inner = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    while os.readlink(f"/proc/{inner.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        time.sleep(0.001)
    opened = os.open(f"/proc/{inner.pid}/ns/net", os.O_RDONLY)
    make_interface(opened)
    try:
        yield opened
    finally:
        os.close(opened)
        inner.kill()
        inner.wait()

server = socket.create_server(("0.0.0.0", 7000))
relays = relay.Relay()

def connect():
    guest = namespaces.inside(namespace, lambda: socket.create_connection(("93.184.216.34", 7000), timeout=10))
    return guest

with guest_namespace() as namespace:
    exec(sys.stdin.read())
"""
ONE_WAY = """
relay.IDLE_SECONDS = 1.0
outlet = relays.open(make_exit(namespace), parse_policy("internet"))
guest = connect()
far, _ = server.accept()
for number in range(10):
    far.sendall(b"x")
    assert guest.recv(1) == b"x", number
    time.sleep(0.3)
print("said", "all came")
"""
SILENT = """
relay.IDLE_SECONDS = 0.5
outlet = relays.open(make_exit(namespace), parse_policy("internet"))
guest = connect()
far, _ = server.accept()
try:
    print("said", guest.recv(1))
except ConnectionResetError:
    print("said reset")
"""
BYTES = """
relay.GUEST_BYTES = 100_000
outlet = relays.open(make_exit(namespace), parse_policy("internet"))
guest = connect()
far, _ = server.accept()
threading.Thread(target=lambda: [far.sendall(bytes(1000)) for _ in range(1000)], daemon=True).start()
got = 0
try:
    while data := guest.recv(65536):
        got += len(data)
except ConnectionResetError:
    pass
print("said", got <= 100_000)
try:
    later = connect()
    print(later.recv(1))
except ConnectionResetError:
    print("later reset")
"""
MANY = """
relay.CONNECTIONS = 3
outlet = relays.open(make_exit(namespace), parse_policy("internet"))
held = [(connect(), server.accept()) for _ in range(3)]
try:
    fourth = connect()
    fourth.settimeout(10)
    print(fourth.recv(1))
except ConnectionResetError:
    print("fourth reset")
held.pop()[0].close()
time.sleep(1)
again = connect()
far, _ = server.accept()
far.sendall(b"y")
print("said", again.recv(1))
"""
SMALL = """
outlet = relays.open(make_exit(namespace), parse_policy("internet"))
guest = connect()
far, _ = server.accept()
guest.sendall(b"x")
assert far.recv(1) == b"x"
ours = (guest.fileno(), far.fileno())
others = [guest.getsockname(), far.getsockname()]
for name in set(map(int, os.listdir("/proc/self/fd"))) - set(ours):
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(name)) as end:
        if end.family == socket.AF_INET and end.getpeername() in others:
            print("said", end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
"""
CLOSED = """
import gc
before = set(os.listdir("/proc/self/fd"))
outlet = relays.open(make_exit(namespace), parse_policy("internet"))
guest = connect()
far, _ = server.accept()
outlet.close()
outlet.close()
try:
    print("said", guest.recv(1))
except ConnectionResetError:
    print("said reset")
guest.close(); far.close(); gc.collect()
until = time.monotonic() + 20
while threading.active_count() > 1 and time.monotonic() < until:
    time.sleep(0.02)
print([thread.name for thread in threading.enumerate()], len(set(os.listdir("/proc/self/fd")) - before))
"""

CLOSED_WHILE_CONNECTING = """
for number in range(40):
    with guest_namespace() as namespace:
        outlet = relays.open(make_exit(namespace), parse_policy("internet"))
        guest = connect()
        time.sleep(number / 10_000)
        outlet.close()
        guest.close()
print("said", "all closed")
"""
DESCRIPTORS = """
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
outlet = relays.open(make_exit(namespace), parse_policy("internet"))
held = [(connect(), server.accept()) for _ in range(60)]
print("said", resource.getrlimit(resource.RLIMIT_NOFILE) == (min(most, descriptor_limit.DESCRIPTORS), most))
"""
SHUT = """
keeper = subprocess.Popen(["sh", "-c", "unshare --net cat; true"], stdin=subprocess.PIPE)
def child():
    return open(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read().strip() or "self"
while os.readlink(f"/proc/{child()}/ns/net") == os.readlink("/proc/self/ns/net"):
    time.sleep(0.001)
namespace = os.open(f"/proc/{child()}/ns/net", os.O_RDONLY)

def says():
    try:
        guest, (far, _) = connect(), server.accept()
        far.sendall(b"x")
        return (guest, far), guest.recv(1)
    except OSError as error:
        return None, type(error).__name__

server.settimeout(10)
way = InternetAccess(relays, parse_policy("internet"))
way.enter(keeper.pid)
print(says()[1])
way.open()
(guest, far), said = says()
print(said)
way.shut()
try:
    print(guest.recv(1))
except ConnectionResetError:
    print("reset")
print(says()[1])
way.open()
print(says()[1])
way.close()
print(says()[1])
keeper.communicate()
"""
OWN = """
keeper = subprocess.Popen(["sh", "-c", "cat; true"], stdin=subprocess.PIPE)
while not open(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read():
    time.sleep(0.001)
try:
    InternetAccess(relays, parse_policy("internet")).enter(keeper.pid)
except RuntimeError as error:
    print("said", error)
print(subprocess.run(["ip", "link", "show", "eth0"], capture_output=True).returncode)
keeper.communicate()
"""


def play(script: str) -> list[str]:
    """What a script prints in network and mount namespaces of its own."""
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", PLAY],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (ONE_WAY, ["said all came"]),
        (SILENT, ["said reset"]),
        (BYTES, ["said True", "later reset"]),
        (MANY, ["fourth reset", "said b'y'"]),
        (SMALL, ["said 1", "said 1"]),
        (CLOSED, ["said reset", "['MainThread'] 0"]),
        (CLOSED_WHILE_CONNECTING, ["said all closed"]),
        (DESCRIPTORS, ["said True"]),
        (SHUT, ["OSError", "b'x'", "reset", "ConnectionRefusedError", "b'x'", "ConnectionRefusedError"]),
        (OWN, ["said QEMU is not in a network namespace of its own", "1"]),
    ],
    ids=[
        *(
            "a long way down only",
            "silence",
            "bytes",
            "connections",
            "small pieces",
            "closed",
            "closed while connecting",
            "descriptors",
        ),
        *("shut and opened", "not a namespace of its own"),
    ],
)
def test_what_a_guest_is_given(script: str, said: list[str]) -> None:
    assert play(script) == said


@pytest.mark.parametrize(
    ("says", "why"), [("echo no tables here >&2; exit 1", "no tables here"), ("exec sleep 60", "nothing within 0 s")]
)
def test_a_machine_that_cannot_lead_guests_out_says_so_before_any_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, why: str
) -> None:
    provider = LocalProvider({"guest_network": "internet"})
    check_available(provider)
    nft = tmp_path / "nft"
    nft.write_text(f"#!/bin/sh\n{says}\n")
    nft.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(exits, "SETUP_SECONDS", 20.0 if "exit" in says else 0.3)
    with pytest.raises(ProviderError, match=f"^a guest's network cannot be made: nft: {why}; it needs a kernel with"):
        check_available(provider)
