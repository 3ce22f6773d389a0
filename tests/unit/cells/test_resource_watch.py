"""The watch over what a cell uses as a whole: whatever happens to it, a cell is never left without it."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rollout_tasks.cells import resource_watch
from rollout_tasks.cells.isolation import CellLimits
from rollout_tasks.cells.resource_watch import ResourceWatch
from tests.recursion import fewer_calls

SECONDS = 20.0
ROOMY = CellLimits(sockets=1 << 20, connections=1 << 20)
"""For processes in this machine's own network, whose sockets count."""
CHAIN = """
import mmap, os, sys
kept = mmap.mmap(-1, int(sys.argv[2]) + 1)
kept.write(bytes(int(sys.argv[2])))
open("/proc/self/comm", "w").write("\\vVmPTE: -999999")
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
    kept[::4096]
os.write(1, b"!")
os.read(0, 1)
"""
"""Each process has one child; they end from the last one on, once the input is closed. They share some
memory, and their name looks like a line of their status."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_watch, "LOOK_SECONDS", 0.01)


@contextmanager
def chain_of(length: int, *, sharing: int = 0) -> Iterator[int]:
    """Yields the first of so many processes, each the child of the one before; they share so many bytes."""
    command = [sys.executable, "-I", "-S", "-c", CHAIN, str(length - 1), str(sharing)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.read(1) == b"!"
        try:
            yield process.pid
        finally:
            process.stdin.close()


@contextmanager
def said_of(pid: int, limits: CellLimits) -> Iterator[queue.Queue[str]]:
    """Yields what the watch of a process says."""
    said: queue.Queue[str] = queue.Queue()
    watch = ResourceWatch(pid, limits, said.put)
    try:
        yield said
    finally:
        watch.stop()


def test_a_deep_chain_of_processes_is_too_many_processes() -> None:
    with chain_of(160) as pid, fewer_calls(150), said_of(pid, CellLimits()) as said:
        assert said.get(timeout=SECONDS) == "it had more than 128 processes and threads"


def test_memory_is_counted_down_a_chain() -> None:
    limits = CellLimits(memory_bytes=1 << 10)
    with chain_of(3) as pid, said_of(pid, limits) as said:
        assert said.get(timeout=SECONDS).startswith("it used more than ")


def test_so_is_memory_that_a_process_could_share() -> None:
    limits = replace(ROOMY, memory_bytes=48 << 20)
    with chain_of(1, sharing=64 << 20) as pid, said_of(pid, limits) as said:
        assert said.get(timeout=SECONDS) == "it used more than 48 MiB of memory"


def test_what_processes_share_is_counted_once() -> None:
    limits = replace(ROOMY, memory_bytes=64 << 20)
    with chain_of(4, sharing=24 << 20) as pid, said_of(pid, limits) as said:
        assert sum(map(resource_watch._memory_of, resource_watch._with_descendants(pid))) > limits.memory_bytes
        with pytest.raises(queue.Empty):
            said.get(timeout=0.2)


def test_a_watch_that_cannot_go_on_ends_the_cell() -> None:
    limits = CellLimits(memory_bytes=None)  # type: ignore[arg-type]
    with said_of(os.getpid(), limits) as said:
        assert said.get(timeout=SECONDS).startswith("what it uses cannot be counted: TypeError: ")
