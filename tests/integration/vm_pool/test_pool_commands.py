"""scripts/pool.py and scripts/vm_host.py as their users run them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.vm_pool.test_gated_host import CountingProvider
from tests.integration.vm_pool.test_pool_host import RunningHost
from vm_pool import Endpoint, VMPool, VMState
from vm_pool.host import VMHost

ROOT = Path(__file__).resolve().parents[3]


def command(script: str, *args: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), *args],
        env={**os.environ, "REDIS_URL": url, "COLUMNS": "140"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


@pytest.fixture
def served(redis_url: str) -> Iterator[tuple[VMPool, subprocess.Popen[bytes]]]:
    """A pool with the two VMs of a vm_host.py."""
    options = ["--option", "boot_seconds=0.02", "--option", 'reset_seconds={"shortest": 0, "longest": 0.02}']
    process = subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "scripts" / "vm_host.py"),
            "-m",
            "2",
            "--pool",
            "test",
            "--host-id",
            "box",
            *options,
        ],
        env={**os.environ, "REDIS_URL": redis_url},
        stderr=subprocess.DEVNULL,
    )
    pool = VMPool(redis.Redis.from_url(redis_url), "test")
    try:
        until(lambda: [vm.state for vm in pool.status().vms] == [VMState.FREE] * 2)
        yield pool, process
    finally:
        process.kill()
        process.wait()


def test_temporary_files_of_a_killed_host_go_when_the_next_one_starts(redis_url: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "scripts" / "vm_host.py"),
        "--pool=test",
        "--host-id=box",
        "--num-vms=1",
        "--option",
        "boot_seconds=0.02",
    ]
    environment = {**os.environ, "REDIS_URL": redis_url, "TMPDIR": str(tmp_path)}

    def folders() -> set[str]:
        return {path.name for path in tmp_path.glob("vm-host-*")}

    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as killed:
        try:
            until(lambda: len(folders()) == 1)
        finally:
            killed.kill()
    left = folders()
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: len(folders()) == 1 and not folders() & left)
            with redis.Redis.from_url(redis_url) as connection:
                until(lambda: [vm.state for vm in VMPool(connection, "test").status().vms] == [VMState.FREE])
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_connect_reaches_a_vm_until_its_lease_is_over(redis_url: str) -> None:
    provider, pool = CountingProvider(), VMPool(redis.Redis.from_url(redis_url), "test")
    host = RunningHost(VMHost(VMPool(redis.Redis.from_url(redis_url), "test"), provider, num_vms=1, host_id="box"))
    try:
        until(lambda: [vm.state for vm in pool.status().vms] == [VMState.FREE])
        lease = pool.acquire("me", timeout=20)
        wrong = command("pool.py", "connect", "box-0", "--pool", "test", url=redis_url)
        assert (wrong.returncode, wrong.stderr) == (2, "error: --purpose: box-0 has no port for 'vnc': control\n")
        connecting = subprocess.Popen(
            [sys.executable, str(ROOT / "scripts/pool.py"), "connect", "box-0", "--purpose=control", "--pool=test"],
            env={**os.environ, "REDIS_URL": redis_url, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert connecting.stdout is not None
        said = connecting.stdout.readline()
        assert said.startswith("box-0 is at http://127.0.0.1:")
        port = int(said.split(":")[2].split()[0])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"look")
            assert connection.recv(100) == b"1"
        lease.release()
        assert connecting.communicate(timeout=30)[0] == "box-0: that lease is over\n"
    finally:
        host.end()
        pool.close()
    gone = command("pool.py", "connect", "box-0", "--pool", "test", url=redis_url)
    assert (gone.returncode, gone.stderr) == (
        2,
        "error: pool 'test' has no VM box-0: it has none\n",
    )


def test_connect_says_why_a_vm_cannot_be_reached(served: tuple[VMPool, object], redis_url: str) -> None:
    pool, _process = served
    pool.quarantine("box-1", "its screen is black")
    for vm, why in (
        ("box-7", "pool 'test' has no VM box-7: it has box-0, box-1"),
        (
            "box-1",
            "box-1 of pool 'test' cannot be reached: it is out of use (quarantined by an operator: its screen is black)",
        ),
    ):
        refused = command("pool.py", "connect", vm, "--pool", "test", url=redis_url)
        assert (refused.returncode, refused.stderr) == (2, f"error: {why}\n")
    refused = command("pool.py", "connect", "box-0", "--pool", "empty", url=redis_url)
    assert refused.stderr == "error: pool 'empty' has no VM box-0: it has none\n"


def test_status_shows_holders_and_waiters(served: tuple[VMPool, object], redis_url: str) -> None:
    pool, _process = served
    lease = pool.acquire("rollout [b]7#0", timeout=5)
    shown = command("pool.py", "status", "--pool", "test", url=redis_url)
    assert shown.returncode == 0
    assert "pool test: 1 free, 1 leased" in shown.stdout
    assert "rollout [b]7#0" in shown.stdout

    told = json.loads(command("pool.py", "status", "--pool", "test", "--json", url=redis_url).stdout)
    by_id = {vm["vm_id"]: vm for vm in told["vms"]}
    assert by_id[lease.vm_id]["holder"] == "rollout [b]7#0"
    assert told["counts"] == {"free": 1, "leased": 1}
    assert told["waiters"] == []


def test_status_shows_where_a_vm_is_reached(pool: VMPool, redis_url: str) -> None:
    pool.register("loose-0", Endpoint("10.1.2.3", {"control": 40001, "vnc": 40002, "vlc": 40003}))
    shown = command("pool.py", "status", "--pool", "test", url=redis_url).stdout
    assert "10.1.2.3:40001" in shown
    assert "10.1.2.3:40002" in shown
    told = json.loads(command("pool.py", "status", "--pool", "test", "--json", url=redis_url).stdout)
    assert told["vms"][0]["endpoint"]["ports"]["vlc"] == 40003


def test_an_operators_day(served: tuple[VMPool, object], redis_url: str) -> None:
    pool, _process = served

    def operate(*args: str) -> list[dict[str, str]]:
        result = command("pool.py", *args, "--pool", "test", "--json", url=redis_url)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    lease = pool.acquire("me", timeout=5, ttl=60, heartbeat=False)
    assert operate("release", lease.vm_id) == [{"vm_id": lease.vm_id, "outcome": "was taken from its holder"}]
    assert lease.release() is False
    until(lambda: [vm.state for vm in pool.status().vms] == [VMState.FREE] * 2)
    operate("quarantine", "box-0", "--why", "noise")
    for what, remark in (("drain", " and drained"), ("undrain", "")):
        assert operate(what, "box-0") == [{"vm_id": "box-0", "outcome": f"is in quarantine{remark}"}]
    assert "noise" in pool.status().vms[0].error
    operate("reset", "box-0")
    until(lambda: [vm.state for vm in pool.status().vms] == [VMState.FREE] * 2)
    assert [outcome["vm_id"] for outcome in operate("drain", "all")] == ["box-0", "box-1"]
    assert [vm.state for vm in pool.status().vms] == [VMState.STOPPED] * 2
    operate("undrain", "all")
    until(lambda: [vm.state for vm in pool.status().vms] == [VMState.FREE] * 2)
    latest = operate("events", "--limit", "2")
    assert [event["event"] for event in latest] == ["booted", "booted"]


@pytest.mark.parametrize("terminal", [{"TERM": "xterm", "FORCE_COLOR": "1"}, {"TERM": "dumb", "FORCE_COLOR": "1"}, {}])
def test_the_live_table_ends_with_ctrl_c(
    served: tuple[VMPool, object], redis_url: str, terminal: dict[str, str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "pool.py"), "status", "--watch", "--pool", "test"],
        env={**os.environ, "REDIS_URL": redis_url, "PYTHONUNBUFFERED": "1", **terminal},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_sigterm_stops_the_vms_and_the_host(served: tuple[VMPool, subprocess.Popen[bytes]], redis_url: str) -> None:
    pool, process = served
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert pool.status().vms == ()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["pool.py", "status", "--watch", "--json"], "--watch and --json cannot be combined"),
        (["pool.py", "status", "--pool", "a b"], "'a b' is not a pool's name"),
        (["pool.py", "status", "--redis-url", "http://127.0.0.1"], "begins with none of redis://, rediss://"),
        (["pool.py", "status", "--redis-url", "redis://127.0.0.1:1/0"], "Redis at 127.0.0.1:1 does not answer"),
        (["pool.py", "drain", "nobody"], "pool 'default' has no VM nobody"),
        (["pool.py", "release", "nobody"], "pool 'default' has no VM nobody"),
        (["pool.py", "reset", "nobody"], "pool 'default' has no VM nobody"),
        (["pool.py", "quarantine", "../x"], "'../x' is not a VM's id"),
        (["pool.py", "remove", "nobody"], "pool 'default' has no VM nobody"),
        (["vm_host.py", "--num-vms", "0"], "num-vms"),
        (["vm_host.py", "--provider", "nothing"], "no VM provider is called 'nothing'; installed: aliyun, aws, "),
        (["vm_host.py", "--option", "boot"], "--option: must look like key=value, got 'boot'"),
        (["vm_host.py", "--option", "boot_secs=1"], "does not accept its options: boot_secs"),
        (["vm_host.py", "--option", "reset_failure=2"], "does not accept its options: reset_failure"),
        (["vm_host.py", "--host-id", "a b"], "'a b' is not a host's id"),
        (
            ["pool.py", "status", "--redis-url", "redis://:wrong-word@HERE"],
            "refuses the login: check the user and the password in its URL, REDIS_URL by default",
        ),
        (
            ["vm_host.py", "--redis-url", "redis://:wrong-word@HERE"],
            "refuses the login: check the user and the password in its URL, REDIS_URL by default",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_user_got_wrong_is_one_sentence(args: list[str], says: str, redis_url: str) -> None:
    here = redis_url.split("@")[1]
    result = command(*[arg.replace("HERE", here) for arg in args], url=redis_url)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "wrong-word" not in result.stderr
    assert result.stdout == ""
