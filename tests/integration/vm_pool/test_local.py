"""Local desktops for real: started, looked at, reverted, ended, and found again after their host was killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.desktops import in_guest, needs_local_desktops, said_by, traces
from vm_pool import event_loop
from vm_pool.errors import ProviderError
from vm_pool.gate_client import connect
from vm_pool.providers import guest_server
from vm_pool.providers.local import LocalProvider, cgroups, requirements
from vm_pool.unpooled import unpooled_vm

pytestmark = needs_local_desktops

HOST = f"test-local-{os.getpid()}"
VM = f"{HOST}-0"
SCREEN = {"screen_width": 1280, "screen_height": 720}


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    provider = LocalProvider(SCREEN)
    provider.boot(VM)
    yield provider
    provider.stop(VM)
    assert traces(VM) == []


def test_a_desktop_answers_with_a_screenshot_of_the_right_size(provider: LocalProvider) -> None:
    provider.check(VM)
    png, size = guest_server.screenshot(lambda: provider.connect(VM, "control"), 10)
    assert size == (1280, 720)
    assert len(png) > 1000


def test_what_faces_a_guest_has_no_key(provider: LocalProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-guests")
    monkeypatch.setenv("REDIS_URL", "redis://:not-for-guests@nowhere/0")
    provider.stop(VM)
    provider.boot(VM)
    environments = b""
    for name in traces(VM):
        if name.startswith("process "):
            with suppress(OSError):  # it has just ended
                environments += Path(f"/proc/{name.split()[1]}/environ").read_bytes()
    assert b"PATH=" in environments
    assert b"not-for-guests" not in environments


def test_a_reset_leaves_nothing_of_what_was_done(provider: LocalProvider) -> None:
    in_guest(
        provider,
        VM,
        "echo secret > /home/user/secret; echo secret > /tmp/secret; setsid sleep 1000 >/dev/null 2>&1 &"
        " timeout 30 sh -c 'until pgrep -x sleep; do :; done'",
    )
    assert in_guest(provider, VM, "cat /home/user/secret /tmp/secret; pgrep -c sleep").split() == [
        "secret",
        "secret",
        "1",
    ]
    provider.reset(VM)
    provider.check(VM)
    assert in_guest(provider, VM, "ls /home/user/secret /tmp/secret 2>/dev/null; pgrep -c sleep").split() == ["0"]


def test_the_guest_can_write_no_more_than_its_disk(provider: LocalProvider) -> None:
    small = LocalProvider({**SCREEN, "disk_mib": 64})
    vm_id = f"{HOST}-1"
    try:
        small.boot(vm_id)
        said = in_guest(small, vm_id, "head -c 100M /dev/zero > /home/user/big; stat -c %s /home/user/big")
        assert "No space left on device" in said
        assert int(said.split()[0]) < 64 * 1024 * 1024
    finally:
        small.stop(vm_id)
    assert traces(vm_id) == []


def test_files_and_folders_are_on_one_device(provider: LocalProvider) -> None:
    said = in_guest(provider, VM, "mkdir -p ~/new && touch ~/file && stat -c %d / /usr/bin/env /home/user ~/new ~/file")
    assert len(set(said.split())) == 1, said


def test_everything_of_a_stopped_desktop_is_gone(provider: LocalProvider) -> None:
    vm_id = f"{HOST}-2"
    provider.boot(vm_id)
    assert traces(vm_id) != []
    provider.stop(vm_id)
    assert traces(vm_id) == []
    provider.stop(vm_id)
    with pytest.raises(RuntimeError, match=f"{vm_id} is not running"):
        provider.check(vm_id)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["boot", "reset"])
def test_a_stop_at_any_moment_leaves_nothing(provider: LocalProvider, what: str) -> None:
    vm_id = f"{HOST}-3"
    outcomes = []

    def start() -> None:
        try:
            provider.boot(vm_id) if what == "boot" else provider.reset(vm_id)
            outcomes.append("started")
        except RuntimeError as error:
            outcomes.append(str(error))

    for delay in (0.0, 0.005, 0.02, 0.05, 0.1, 0.2):
        if what == "reset":
            provider.boot(vm_id)
        starting = threading.Thread(target=start)
        starting.start()
        time.sleep(delay)
        while starting.is_alive():
            provider.stop(vm_id)
            time.sleep(0.01)
        starting.join()
        provider.stop(vm_id)
        assert traces(vm_id) == [], f"stopped after {delay} s: {outcomes}"
    assert all("stopped" in outcome or "not running" in outcome for outcome in outcomes if outcome != "started"), (
        outcomes
    )


def test_a_desktop_of_ones_own_is_reached_through_a_gate() -> None:
    vm_id = f"{HOST}-own"
    with unpooled_vm(LocalProvider(SCREEN), vm_id) as vm:
        assert said_by(connect(vm.endpoint, "control"), "hostname") == "desktop\n"
        assert sorted(vm.endpoint.ports) == ["attest", "chromium", "control", "vlc", "vnc"]
        with connect(vm.endpoint, "attest") as asking:
            assert asking.makefile().read() == '{"altered": []}\n'
    assert traces(vm_id) == []


REFUSALS = [
    (["setpriv", "--bounding-set=-sys_admin"], [], "need the right to make namespaces and to mount"),
    ([], ["--option", "runtime=no-such-runtime"], "need an OCI runtime, no-such-runtime: apt-get install runc"),
    ([], ["--option", "processes=3"], "does not accept its options: processes"),
    ([], ["--option", "profile=huge"], "there is no guest image 'huge': choose one of core, "),
    ([], ["--address", "192.0.2.1"], "a gate cannot listen on 192.0.2.1"),
]


@pytest.mark.parametrize(("prefix", "options", "sentence"), REFUSALS, ids=[sentence for *_, sentence in REFUSALS])
def test_what_is_missing_is_said_in_one_sentence(
    redis_url: str, prefix: list[str], options: list[str], sentence: str
) -> None:
    command = [*prefix, sys.executable, "scripts/vm_host.py", "--provider", "local", "--redis-url", redis_url, *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_machine_that_cannot_limit_says_how_to_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_MOUNTED", tmp_path)
    with pytest.raises(
        ProviderError, match=r"cannot limit a desktop's memory and pids: .* memory_mib=null processes=null"
    ):
        LocalProvider({}).check_available()
    LocalProvider({"memory_mib": None, "processes": None}).check_available()


def test_a_host_that_lets_users_trace_what_changes_them_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = requirements._text
    dumpable = "/proc/sys/fs/suid_dumpable"
    monkeypatch.setattr(requirements, "_text", lambda path, other: "1\n" if path == dumpable else text(path, other))
    with pytest.raises(ProviderError, match=r"act as its control server: sysctl -w fs\.suid_dumpable=0$"):
        LocalProvider({}).check_available()


def test_a_runtime_that_cannot_run_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = tmp_path / "crun"
    runtime.symlink_to("/bin/true")
    unified = tmp_path / "cgroups" / "unified"
    unified.mkdir(parents=True)
    (unified / "cgroup.controllers").touch()
    monkeypatch.setattr(cgroups, "_MOUNTED", unified.parent)
    with pytest.raises(
        ProviderError, match=r"crun does not run where both versions of cgroups are mounted: apt-get install"
    ):
        LocalProvider({"runtime": str(runtime)}).check_available()


def test_a_runtime_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    runtime = tmp_path / "broken-runtime"
    runtime.write_text("#!/bin/sh\necho 'no such luck' >&2\nexit 1\n")
    runtime.chmod(0o755)
    vm_id = f"{HOST}-4"
    with pytest.raises(RuntimeError, match=f"{vm_id} cannot be started: no such luck"):
        LocalProvider({"runtime": str(runtime)}).boot(vm_id)
    assert traces(vm_id) == []


def test_a_desktop_ends_though_its_way_out_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{HOST}-stuck-0"
    provider = LocalProvider({**SCREEN, "guest_network": "internet"})
    provider.boot(name)
    monkeypatch.setattr(event_loop, "CLOSE_SECONDS", 0.5)
    free = threading.Event()
    loop = provider._relay._thread.loop
    loop.call_soon_threadsafe(free.wait, 60)
    try:
        with pytest.raises(TimeoutError):
            provider.stop(name)
        assert traces(name) == []
    finally:
        free.set()
    deadline = time.monotonic() + 30
    while asyncio.run_coroutine_threadsafe(asyncio.sleep(0, len(asyncio.all_tasks(loop))), loop).result(10) > 1:
        assert time.monotonic() < deadline, "the way out is closed once it can be"
        time.sleep(0.05)
