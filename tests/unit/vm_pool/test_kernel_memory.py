"""The watch over a desktop's kernel memory: a desktop is never left without it."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from vm_pool.providers.local import kernel_memory
from vm_pool.providers.local.kernel_memory import KernelMemoryWatch

HEADINGS = "sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"0 0 7 0 {65 << 20} 0 0 2 0 1\n", "more than 64 MiB in netlink sockets"),
        ("a line of another kernel\n", "what cannot be counted"),
    ],
)
def test_a_desktop_ends_that_holds_too_much_or_that_cannot_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setattr(kernel_memory, "LOOK_SECONDS", 0.01)
    network = tmp_path / "1" / "net"
    network.mkdir(parents=True)
    (tmp_path / "locks").touch()
    (network / "protocols").touch()
    (network / "netlink").write_text(HEADINGS + line)
    overdone: queue.Queue[str] = queue.Queue()
    watch = KernelMemoryWatch(tmp_path, 1, overdone.put)
    try:
        assert overdone.get(timeout=10.0) == said
    finally:
        watch.stop()
