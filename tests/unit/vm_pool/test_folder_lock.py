"""Who holds a VM's folder, on whatever file system and in whatever process namespace it is."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vm_pool.egress.relay import Relay
from vm_pool.errors import VMsInUse
from vm_pool.providers import folder_lock
from vm_pool.providers.folder_lock import abandoned, check_unused, make_held
from vm_pool.providers.leftovers import end_each
from vm_pool.providers.local import folders as local_folders
from vm_pool.providers.local.container import Container
from vm_pool.providers.local.options import LocalOptions
from vm_pool.providers.local.requirements import HostFeatures
from vm_pool.providers.qemu import folders as qemu_folders
from vm_pool.providers.qemu.process import QemuProcess

CHECK = """
import sys
from pathlib import Path
from vm_pool.errors import VMsInUse
from vm_pool.providers.folder_lock import check_unused
try:
    check_unused(Path(sys.argv[1]))
except VMsInUse as error:
    print(error)
"""
HOLD = """
import sys, time
from pathlib import Path
from vm_pool.providers.folder_lock import make_held
make_held(Path(sys.argv[1]), 0o700)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "box-0"


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder."""
    with held_by_another(folder) as process:
        yield process


@contextmanager
def held_by_another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path, pid: int) -> None:
    """The kernel's list of locks as it is for btrfs, whose devices there are others than those of its files."""
    locks = tmp_path / "locks"
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE {pid} 00:ff:{folder.stat().st_ino} 0 EOF\n")
    monkeypatch.setattr(folder_lock, "_LOCKS", locks)


@pytest.mark.skipif(os.geteuid() != 0, reason="process namespaces are root's")
def test_a_holder_that_cannot_be_seen_still_holds_it(folder: Path) -> None:
    held = make_held(folder, 0o700)
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", CHECK, str(folder)]

    said = [subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout]
    os.close(held)
    said.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)

    assert said == [
        "a process that cannot be seen from here uses box-0: stop that one, or give this host another id (--host-id)\n",
        "",
    ]


def test_a_holder_is_known_where_the_kernel_lists_another_device(
    folder: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed(monkeypatch, tmp_path, folder, holder.pid)
    with pytest.raises(VMsInUse, match=f"^process {holder.pid} of this machine uses box-0: "):
        check_unused(folder)
    holder.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
    check_unused(folder)


def test_nobody_is_taken_for_the_holder_of_another_device(
    folder: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed(monkeypatch, tmp_path, folder, os.getppid())
    with pytest.raises(VMsInUse, match=r"^a process that cannot be seen from here uses box-0: "):
        check_unused(folder)


def test_a_folder_that_cannot_be_locked_is_not_called_held(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=rf"cannot be locked: Not a directory: '{re.escape(str(folder))}'"):
        make_held(folder, 0o700)
    assert list(abandoned(tmp_path)) == [tmp_path / "elsewhere"]


def a_qemu_vm(vm_id: str) -> Callable[[], None]:
    def fail(_folder: Path) -> None:
        raise OSError("no room for its disks")

    machine = QemuProcess(vm_id)
    with pytest.raises(OSError, match="no room"):
        machine.launch(fail, lambda _folder, _clock: [], [])
    return machine.end


def a_desktop(vm_id: str) -> Callable[[], None]:
    container = Container(vm_id, LocalOptions(memory_mib=None), HostFeatures("runc", shifts_owners=True), Relay())
    container._make_folder()
    return container.end


@pytest.mark.parametrize("begin", [a_qemu_vm, a_desktop])
def test_a_host_that_was_stopped_for_long_ends_only_its_own_vms(
    begin: Callable[[str], Callable[[], None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host had ended them meanwhile, and made its own of the same names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(local_folders, "STATE_FOLDER", qemu_folders.state_folder())
    vm_id = f"box{os.getpid()}-0"
    folder = qemu_folders.folder_of(vm_id)

    begin(vm_id)()
    assert not folder.exists()

    end = begin(vm_id)
    shutil.rmtree(folder)
    with held_by_another(folder):
        end()
        assert folder.exists()


def test_a_leftover_that_another_host_is_ending_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with held_by_another(qemu_folders.folder_of("box-0")) as other:
        soon = threading.Timer(0.1, other.kill)
        soon.start()
        assert end_each(["box-0"], qemu_folders.end_leftover) == ["box-0"]
        soon.join()

    monkeypatch.setattr(folder_lock, "LET_GO_SECONDS", 0.1)
    with held_by_another(qemu_folders.folder_of("box-0")), pytest.raises(VMsInUse, match="uses box-0"):
        end_each(["box-0"], qemu_folders.end_leftover)
