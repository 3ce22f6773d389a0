"""The folder that local desktops share comes with the first of them and goes with the last, however that one ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests import desktops
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops
from tests.virtual_machines import wait_until
from vm_pool.egress.relay import Relay
from vm_pool.processes import children_of, is_stopped
from vm_pool.providers.folder_lock import make_held
from vm_pool.providers.local import LocalProvider, cgroups, container, folders
from vm_pool.providers.local.container import Container, DesktopStopped
from vm_pool.providers.local.keeper_process import keepers_of, only_child
from vm_pool.providers.local.options import LocalOptions
from vm_pool.providers.local.requirements import HostFeatures

HOST = f"test-folders-{os.getpid()}"
KILLED_HOST = """
import os, signal, sys
from pathlib import Path
from vm_pool.providers.local import LocalProvider, folders
folders.STATE_FOLDER = Path(sys.argv[1])
LocalProvider({"screen_width": 640, "screen_height": 480}).boot(sys.argv[2])
print("booted", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in the place of /run; the machine's own may have other desktops in it."""
    folder = Path(f"/run/{HOST}")  # pytest's temporary folders are closed to the guest's root
    folder.mkdir(mode=0o711)
    monkeypatch.setattr(folders, "STATE_FOLDER", folder / "rollouts" / "desktops")
    yield folder
    shutil.rmtree(folder)


@contextmanager
def booted_host(vm_id: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, with a desktop in the folder of these tests."""
    command = [sys.executable, "-c", KILLED_HOST, str(folders.STATE_FOLDER), vm_id]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=REPOSITORY, text=True, **pipes) as host:
        assert host.stdout.readline() == "booted\n"
        try:
            yield host
        finally:
            host.kill()


@contextmanager
def lasting() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with desktops."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


@needs_local_desktops
def test_the_last_desktop_takes_the_folder_along(top: Path) -> None:
    provider = LocalProvider({"screen_width": 640, "screen_height": 480})
    vm_id = f"{HOST}-0"
    try:
        provider.boot(vm_id)
        assert [path.name for path in folders.STATE_FOLDER.iterdir()] == [vm_id]
    finally:
        provider.stop(vm_id)
    assert list(top.iterdir()) == []


@needs_local_desktops
def test_so_does_the_last_desktop_of_a_killed_host(top: Path) -> None:
    command = [sys.executable, "-c", KILLED_HOST, str(folders.STATE_FOLDER), f"{HOST}-1"]
    ended = subprocess.run(command, cwd=REPOSITORY, input="", capture_output=True, text=True, check=False, timeout=120)
    assert ended.stdout == "booted\n", ended.stderr
    deadline = time.monotonic() + 30
    while list(top.iterdir()):
        assert time.monotonic() < deadline, list(folders.STATE_FOLDER.rglob("*"))
        time.sleep(0.05)


@pytest.mark.slow
@needs_local_desktops
@pytest.mark.parametrize(
    ("stopped", "killed", "folder_stays"),
    [("launcher", "", False), ("launcher", "keeper", True), ("keeper", "", True)],
    ids=["the launcher is stopped", "the keeper is killed, too", "the keeper is stopped"],
)
def test_the_next_start_ends_what_a_host_left_that_was_killed_while_it_ended_a_desktop(
    top: Path, stopped: str, killed: str, folder_stays: bool
) -> None:
    """It stops a process, kills its children, then the process."""
    vm_id = f"{HOST}-3"
    folder = folders.folder_of(vm_id)
    with booted_host(vm_id) as host:
        both = set(keepers_of(folder))
        [launcher] = [pid for pid in both if both & set(children_of(pid))]
        pids = {"launcher": launcher, "keeper": only_child(launcher)}
        os.kill(pids[stopped], signal.SIGSTOP)
        wait_until(lambda: is_stopped(pids[stopped]))
        if killed:
            os.kill(pids[killed], signal.SIGKILL)
        host.kill()
        host.wait()
        wait_until(lambda: folder.exists() == folder_stays)

        def all_gone() -> bool:
            LocalProvider({}).reap_leftovers("another-host")
            return desktops.traces(vm_id) == []

        try:
            wait_until(all_gone, seconds=20)
        finally:
            with suppress(ProcessLookupError):
                os.kill(launcher, signal.SIGKILL)
    assert list(top.iterdir()) == []


@pytest.mark.slow
@needs_local_desktops
def test_the_folder_stays_as_long_as_a_process_is_in_the_desktops_cgroup(top: Path) -> None:
    """A stranger's process is not in the namespace that ends with the keeper."""
    vm_id = f"{HOST}-2"
    with booted_host(vm_id) as host, lasting() as stranger:
        (desktops.cgroups(vm_id)[0] / "cgroup.procs").write_text(str(stranger.pid))
        host.kill()
        wait_until(lambda: not any(keepers_of(folders.folder_of(vm_id))))

        assert folders.folder_of(vm_id).is_dir()
        assert folders.end_abandoned() == [vm_id]

        assert stranger.wait(10) == -signal.SIGKILL
    assert desktops.traces(vm_id) == []
    assert list(top.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")
def test_desktops_that_begin_and_end_at_the_same_time_keep_out_of_each_others_way(top: Path) -> None:
    failures: list[OSError] = []

    def begin_and_end(vm_id: str) -> None:
        try:
            for _ in range(300):
                held = make_held(folders.folder_of(vm_id), 0o711)
                (folders.folder_of(vm_id) / "disk").mkdir()
                folders.end_abandoned()
                folders.remove_traces(vm_id)
                os.close(held)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=begin_and_end, args=(f"{HOST}-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert list(top.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")
def test_a_desktop_that_is_ended_before_it_makes_its_cgroup_makes_none(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end has looked for the cgroup, but has not yet removed the folder."""
    vm_id = f"{HOST}-4"
    starting = Container(vm_id, LocalOptions(), HostFeatures("runc", shifts_owners=True), Relay())
    ending = threading.Thread(target=starting.end)
    looked, goes_on = threading.Event(), threading.Event()
    config_of, remove = container.runtime_config, cgroups.remove

    def config_meanwhile(*args: Any, **kwargs: Any) -> dict[str, Any]:
        ending.start()
        assert looked.wait(20)
        return config_of(*args, **kwargs)

    def remove_and_wait(vm_id: str, seconds: float) -> None:
        remove(vm_id, seconds)
        looked.set()
        assert goes_on.wait(20)

    monkeypatch.setattr(container, "runtime_config", config_meanwhile)
    monkeypatch.setattr(cgroups, "remove", remove_and_wait)
    with suppress(DesktopStopped):
        starting._make_folder()
    goes_on.set()
    ending.join()

    assert desktops.traces(vm_id) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")
def test_what_nobody_holds_is_removed_whoever_made_it(top: Path, caplog: pytest.LogCaptureFixture) -> None:
    mine = make_held(folders.folder_of(f"{HOST}-0"), 0o711)
    for name in (f"{HOST}-1", "embedded-1.vm-0"):
        os.close(make_held(folders.folder_of(name), 0o711))
    (folders.STATE_FOLDER / "not a VM's").mkdir()
    (folders.STATE_FOLDER / "a file").touch()
    (folders.STATE_FOLDER / "a-link-0").symlink_to("/")

    assert folders.end_abandoned() == ["embedded-1.vm-0", f"{HOST}-1"]

    assert sorted(path.name for path in folders.STATE_FOLDER.iterdir()) == sorted(
        [f"{HOST}-0", "a file", "a-link-0", "not a VM's"]
    )
    assert "a desktop that nobody uses any more stays: " in caplog.text
    os.close(mine)
    assert folders.end_abandoned() == [f"{HOST}-0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")
def test_a_leftover_that_does_not_end_keeps_no_other_and_no_host_from_starting(
    top: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (0, 1):
        os.close(make_held(folders.folder_of(f"{HOST}-{number}"), 0o711))
    monkeypatch.setattr(folders, "END_SECONDS", 0.1)
    mounts = top / "cgroups"  # a folder that is none of the kernel's, and stays
    (mounts / cgroups.cgroup_of(f"{HOST}-0").lstrip("/") / "busy").mkdir(parents=True)
    monkeypatch.setattr(cgroups, "_MOUNTED", mounts)

    assert LocalProvider({}).reap_leftovers(HOST) == [f"{HOST}-1"]

    assert f"{HOST}-0 of an earlier process stays: {HOST}-0: processes in {mounts}" in caplog.text
    with pytest.raises(TimeoutError):
        LocalProvider({}).stop(f"{HOST}-0")
