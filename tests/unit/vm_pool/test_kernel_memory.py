"""The watch over a desktop's kernel memory: a desktop is never left without it."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from tests.descriptors import how_many_descriptors
from vm_pool.providers.local import kernel_memory
from vm_pool.providers.local.kernel_memory import KernelMemoryWatch

HEADINGS = "sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode\n"


@pytest.fixture
def processes(tmp_path: Path) -> Path:
    """A ``/proc`` with one process, whose desktop has no netlink sockets."""
    network = tmp_path / "1" / "net"
    network.mkdir(parents=True)
    (tmp_path / "locks").touch()
    (network / "protocols").touch()
    (network / "netlink").write_text(HEADINGS)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"0 0 7 0 {65 << 20} 0 0 2 0 1\n", "more than 64 MiB in netlink sockets"),
        ("a line of another kernel\n", "what cannot be counted"),
    ],
)
def test_a_desktop_ends_that_holds_too_much_or_that_cannot_be_watched(
    processes: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setattr(kernel_memory, "LOOK_SECONDS", 0.01)
    (processes / "1" / "net" / "netlink").write_text(HEADINGS + line)
    overdone: queue.Queue[str] = queue.Queue()
    watch = KernelMemoryWatch(processes, 1, overdone.put)
    try:
        assert overdone.get(timeout=10.0) == said
    finally:
        watch.stop()


def test_a_watch_that_cannot_start_leaves_no_file_open(processes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = how_many_descriptors()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        KernelMemoryWatch(processes, 1, print)
    assert how_many_descriptors() == before
