"""Who holds a VM's folder, on whatever file system and in whatever process namespace it is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vm_pool.errors import VMsInUse
from vm_pool.providers import folder_lock
from vm_pool.providers.folder_lock import abandoned, check_unused, make_held

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
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
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
