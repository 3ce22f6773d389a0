"""The processes that have memory on this machine's GPUs: whose they are, and which are left over. Ends none."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import psutil

from rollout_tasks.models.serving.nvml import GPUMemory
from rollout_tasks.models.serving.server_records import ServerRecord, record_of
from vm_pool.processes import name_of

_WORKER = re.compile(r"(VLLM|sglang)::|.*\bmultiprocessing\.(spawn|forkserver)\b")
"""Command lines of processes that are of use only to the program that has started them."""
_UNEXPLAINED_MIB = 256
"""A driver without any process may have less than this in use."""


@dataclass(frozen=True, slots=True)
class GPUProcess:
    """A process that has memory on a GPU, or leads the session of one that has."""

    pid: int
    name: str
    """Tells it from a later one with its id; see `vm_pool.processes`."""
    user: str
    user_id: int
    command: str
    began: float
    """Seconds since 1970."""
    parent_gone: bool
    """Whether the process that started it has surely ended before it."""
    served: bool
    """Whether `rollouts model serve` started it, or the process that started it."""
    left_over: str
    """Why nobody will use or end it, as a sentence; empty if somebody may."""
    memory: Mapping[int, int | None]
    """MiB by the GPU's index; None where it is not known how much."""

    @property
    def seconds(self) -> float:
        """Its age."""
        return max(0.0, time.time() - self.began)


@dataclass(frozen=True, slots=True)
class GPUHolders:
    """Who has the memory of the GPUs."""

    processes: Sequence[GPUProcess]
    unseen: Mapping[int, Mapping[int, int | None]]
    """MiB by GPU of the processes that the driver names and this machine does not show, by process id."""
    unexplained: Mapping[int, int]
    """MiB by GPU that are in use and that the driver says no process has."""

    def left_over(self) -> list[GPUProcess]:
        """Returns the processes that are left over; those that `rollouts model serve` started after the leader of their session."""
        found: dict[int, GPUProcess] = {}
        for process in self.processes:
            if process.left_over:
                leader = _leader(process) if process.served else None
                if leader is not None and leader.pid not in found:
                    found[leader.pid] = leader
                found[process.pid] = process
        with_memory = {process.pid: process for process in self.processes}
        return [with_memory.get(pid, process) for pid, process in found.items()]


def holders(gpus: Iterable[GPUMemory]) -> GPUHolders:
    """Returns who has the memory of the GPUs."""
    memory: dict[int, dict[int, int | None]] = defaultdict(dict)
    unexplained = {}
    for gpu in gpus:
        for pid, size in gpu.processes.items():
            memory[pid][gpu.index] = size
        rest = gpu.used - sum(size or 0 for size in gpu.processes.values())
        if rest >= _UNEXPLAINED_MIB and None not in gpu.processes.values():
            unexplained[gpu.index] = rest
    seen = {pid: _process(pid, sizes) for pid, sizes in sorted(memory.items())}
    return GPUHolders(
        [process for process in seen.values() if process is not None],
        {pid: memory[pid] for pid, process in seen.items() if process is None},
        unexplained,
    )


def _process(pid: int, memory: Mapping[int, int | None]) -> GPUProcess | None:
    """Returns what is known of a process; None if this machine does not show it, or it has ended."""
    name = name_of(pid)
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if not name or process.status() == psutil.STATUS_ZOMBIE:
                return None
            user = process.uids().real
            record = record_of(pid, user)
            return GPUProcess(
                pid=pid,
                name=name,
                user=process.username(),
                user_id=user,
                command=_command(process),
                began=process.create_time(),
                parent_gone=_parent_gone(process),
                served=record is not None,
                left_over=_why_left_over(process, record),
                memory=memory,
            )
    except (psutil.Error, OSError):
        return None


def _leader(process: GPUProcess) -> GPUProcess | None:
    """Returns the leader of a process's session, as one without memory; None if it has ended."""
    with suppress(OSError):
        leader = _process(os.getsid(process.pid), {})
        return leader and replace(leader, left_over=process.left_over)
    return None


def _why_left_over(process: psutil.Process, record: ServerRecord | None) -> str:
    if record is not None:
        return "the rollouts model serve that started it has ended" if record.left_alone else ""
    # A worker of a worker has its parent still.
    for one in (process, *process.parents()):
        if not _WORKER.match(_command(one)):
            return ""
        if _parent_gone(one):
            return "it is a worker of a program that has ended"
    return ""


def _parent_gone(process: psutil.Process) -> bool:
    """Whether the process that started one has surely ended.

    One that leads no session is in that of the process that started it, and keeps it. So a parent of another session is not
    the one that started it, but the one that has taken it over: whichever that is, process 1 or another one.
    """
    parent = process.ppid()
    if parent == 0:  # outside of this PID namespace
        return False
    with suppress(OSError):
        session = os.getsid(process.pid)
        return session not in (process.pid, os.getsid(parent))
    return False


def _command(process: psutil.Process) -> str:
    """Returns a process's command line, or its title."""
    try:
        return " ".join(process.cmdline()).strip() or process.name()
    except psutil.AccessDenied:
        return process.name()
