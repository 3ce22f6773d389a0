"""What root inside a local desktop can do to the machine: nothing. Each way out is tried, and works outside where it can."""

from __future__ import annotations

import contextlib
import http.client
import os
import platform
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from tests.desktops import cgroups, in_guest, needs_local_desktops, traces
from vm_pool.providers.local import LocalProvider

pytestmark = needs_local_desktops

HOST = f"test-isolation-{os.getpid()}"
VM, OTHER, GREEDY = f"{HOST}-0", f"{HOST}-1", f"{HOST}-2"
SMALL = {"screen_width": 800, "screen_height": 600, "memory_mib": 768, "processes": 256, "disk_mib": 256}

REACH = """
import socket, sys
family, kind, *address = eval(sys.argv[1])
try:
    with socket.socket(family, kind) as connection:
        connection.settimeout(3)
        connection.connect(address[0])
    print("reached")
except OSError as error:
    print("refused", error)
"""

SYSTEM_CALL = "python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(*map(int, sys.argv[1:])) < 0)'"

SYSTEM_CALLS = {
    "x86_64": {"init_module": "175 0 1 0", "bpf": "321 0 0 0", "keyctl": "250 0 -3 0", "io_uring_setup": "425 1 0 0"},
    "aarch64": {"init_module": "105 0 1 0", "bpf": "280 0 0 0", "keyctl": "219 0 -3 0", "io_uring_setup": "425 1 0 0"},
}


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    provider = LocalProvider(SMALL)
    for vm_id in (VM, OTHER):
        provider.boot(vm_id)
    yield provider
    for vm_id in (VM, OTHER, GREEDY):
        provider.stop(vm_id)
    assert traces(HOST) == []


def as_root(provider: LocalProvider, command: str, vm_id: str = VM, *, seconds: float = 60) -> str:
    return in_guest(provider, vm_id, f"echo password | sudo -S -p '' sh -c {shlex.quote(command)}", seconds=seconds)


def test_the_attempts_are_made_as_root(provider: LocalProvider) -> None:
    assert as_root(provider, "id -u; touch /usr/bin/mine && echo wrote").split() == ["0", "wrote"]


def test_no_file_of_the_host_is_there(provider: LocalProvider, tmp_path: Path) -> None:
    name = f"sentinel-{os.getpid()}"
    (tmp_path / name).write_text("secret")
    assert (
        as_root(provider, f"find / -name '{name}' 2>/dev/null; cat {tmp_path / name} 2>/dev/null; echo end") == "end\n"
    )
    mounted = as_root(provider, "cat /proc/self/mountinfo")
    assert str(Path.home()) not in mounted
    assert "/dev/" not in " ".join(line.split(" - ", 1)[1] for line in mounted.splitlines())


def test_no_process_of_the_host_is_there(provider: LocalProvider) -> None:
    with subprocess.Popen(["sleep", "98765"]) as sleeper:
        try:
            listed = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
            assert "sleep 98765" in subprocess.run(["sh", "-c", listed], capture_output=True, text=True).stdout
            inside = as_root(provider, listed)
            assert "sleep 98765" not in inside
            assert "session" in inside
            as_root(provider, f"kill -9 {sleeper.pid} {os.getpid()} {os.getppid()}; python3 -c '{KILL_ALL_BUT_OWN}'")
            assert sleeper.poll() is None
        finally:
            sleeper.kill()


KILL_ALL_BUT_OWN = """
import os
for pid in range(2, 40000):
    if not os.path.exists(f"/proc/{pid}"):
        try:
            os.kill(pid, 9)
        except OSError:
            pass
"""


def _addresses(port: int, abstract: str) -> list[tuple[int, int, object]]:
    """Everything on which the host listens: all its addresses, and an abstract Unix socket."""
    found: list[tuple[int, int, object]] = [(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}")]
    for addresses in psutil.net_if_addrs().values():
        found += [
            (socket.AF_INET, socket.SOCK_STREAM, (one.address, port))
            for one in addresses
            if one.family == socket.AF_INET
        ]
    return found


def test_no_way_leads_to_the_hosts_network(provider: LocalProvider, redis_url: str) -> None:
    abstract = f"sentinel-{os.getpid()}"
    with socket.create_server(("0.0.0.0", 0)) as listener, socket.socket(socket.AF_UNIX) as local:  # noqa: S104
        local.bind(f"\0{abstract}")
        local.listen()
        ways = _addresses(listener.getsockname()[1], abstract)
        where = redis.Redis.from_url(redis_url).connection_pool.connection_kwargs
        ways.append((socket.AF_INET, socket.SOCK_STREAM, (where["host"], where["port"])))
        for family, kind, address in ways:
            way = repr((int(family), int(kind), address))
            outside = subprocess.run([sys.executable, "-c", REACH, way], capture_output=True, text=True).stdout
            assert outside == "reached\n", (way, outside)
            inside = as_root(provider, f"python3 -c {shlex.quote(REACH)} {shlex.quote(way)}")
            assert inside.startswith("refused"), (way, inside)


def test_the_network_has_a_loopback_and_no_way_out(provider: LocalProvider) -> None:
    assert as_root(provider, "ls /proc/sys/net/ipv4/conf").split() == ["all", "default", "lo"]
    assert as_root(provider, "ip -o link | cut -d: -f2; ip route").split() == ["lo"]


def test_desktops_do_not_see_each_other(provider: LocalProvider) -> None:
    as_root(provider, "echo mine > /home/user/private; python3 -m http.server 7777 >/dev/null 2>&1 &", OTHER)
    way = repr((int(socket.AF_INET), int(socket.SOCK_STREAM), ("127.0.0.1", 7777)))
    reach = f"python3 -c {shlex.quote(REACH)} {shlex.quote(way)}"
    deadline = time.monotonic() + 60
    while as_root(provider, reach, OTHER) != "reached\n":
        assert time.monotonic() < deadline
    assert as_root(provider, reach).startswith("refused")
    assert "No such file" in as_root(provider, "cat /home/user/private")


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /mnt",
        "mount --bind / /mnt",
        "mount -o remount,rw /sys",
        "mount -t proc none /mnt",
        "umount /proc/sys",
        "chroot / true",
        "mknod /tmp/disk b 254 0",
        "mknod /dev/mem c 1 1",
        "echo 1 > /proc/sys/kernel/panic",
        "echo '|/bin/true' > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo b > /proc/sysrq-trigger",
        "echo 0 > /sys/devices/system/cpu/cpu1/online",
        "ls /sys/fs/cgroup/",
        "ls /sys/class/net/",
        "cat /proc/kcore",
        "dmesg",
        "unshare --user true",
        "unshare --net true",
        "nsenter --target 1 --net true",
        "ip link set lo down",
        "ip link add dummy0 type dummy",
        "date --set 2020-01-01",
        "hostname elsewhere",
        f"{sys.executable} -c pass",
        'python3 -c \'import ctypes, os; os._exit(0 if ctypes.CDLL(None).syscall(175, b"x", 1, b"") == 0 else 1)\'',  # init_module
        *(f"{SYSTEM_CALL} {words}" for words in SYSTEM_CALLS[platform.machine()].values()),
        "python3 -c 'import socket; socket.socket(40, 1)'",  # vsock
        "python3 -c 'import socket; socket.socket(17, 3)'",  # raw frames
        "python3 -c 'import socket; socket.socket(2, 3, 1)'",  # raw IP
        "python3 -c 'import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))'",
        "python3 -c 'import os; os.nice(-5)'",
    ],
)
def test_it_is_refused(provider: LocalProvider, command: str) -> None:
    said = as_root(provider, f"if {command}; then echo; echo DONE; else echo; echo REFUSED; fi")
    assert said.split("\n").count("REFUSED") == 1, said


def _limits_hit(vm_id: str) -> set[str]:
    """The limits that the kernel has held a desktop to, in either version of cgroups."""
    hit = set()
    for folder in cgroups(vm_id):
        for name in ("pids.events", "memory.events", "memory.failcnt", "memory.oom_control"):
            with contextlib.suppress(OSError):
                counts = dict(line.rpartition(" ")[::2] for line in (folder / name).read_text().splitlines())
                if int(counts.get("max", counts.get("oom_kill", counts.get("", 0)))) > 0:
                    hit.add(name.partition(".")[0])
    return hit


def test_no_desktop_is_swapped_out(provider: LocalProvider) -> None:
    """One at its limit would fill the swap of the whole host."""
    (cgroup,) = [folder for folder in cgroups(VM) if (folder / "memory.stat").exists()]
    versions = {"memory.memsw.limit_in_bytes": SMALL["memory_mib"] << 20, "memory.swap.max": 0}
    seen = {name: int((cgroup / name).read_text()) for name in versions if (cgroup / name).exists()}
    if not seen:
        pytest.skip("this kernel does not count swap")
    assert seen == {name: versions[name] for name in seen}


@pytest.mark.parametrize(
    ("greed", "limit"),
    [
        ("bomb() { bomb | bomb & }; bomb", "pids"),
        pytest.param("for i in 1 2 3 4; do tail /dev/zero & done; wait", "memory", marks=pytest.mark.slow),
        pytest.param(
            "for i in 1 2 3 4 5 6 7 8; do head -c 200M /dev/zero > /dev/shm/$i & done; wait",
            "memory",
            marks=pytest.mark.slow,
        ),
        ("for i in 1 2 3 4 5 6 7 8; do (while true; do true; done) & done", None),
    ],
    ids=["fork bomb", "memory hog", "memory in files", "busy processors"],
)
def test_greed_takes_down_only_its_own_desktop(provider: LocalProvider, greed: str, limit: str | None) -> None:
    provider.boot(GREEDY)
    before = psutil.virtual_memory().available
    with contextlib.suppress(OSError, AssertionError, http.client.HTTPException):  # it may take its own server down
        in_guest(provider, GREEDY, f"setsid bash -c {shlex.quote(greed)} >/dev/null 2>&1 &", seconds=20)

    deadline = time.monotonic() + 60
    while limit is not None and limit not in _limits_hit(GREEDY):
        assert time.monotonic() < deadline, f"it never came to the limit of {limit}"
    for _ in range(3):
        provider.check(OTHER)
    # Other tests take some, too; a hog without a limit would take all there is.
    assert before - psutil.virtual_memory().available < 4 * 768 * 1024 * 1024

    provider.reset(GREEDY)
    provider.check(GREEDY)
    provider.stop(GREEDY)
    assert traces(GREEDY) == []
