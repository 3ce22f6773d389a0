"""The machine's processes: names by which others can tell whether one has ended, their command lines, their ends."""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_PROC = Path("/proc")
_STATE, _BEGAN = 0, 19
"""Positions of these fields of /proc/<pid>/stat after the command's name."""
_SECRETS = frozenset(
    {
        "OPENAI_API_KEY",
        "SCRIPTED_MODEL_API_KEY",
        "REDIS_URL",
        "ROLLOUT_REDIS_URL",
        "CELERY_BROKER_URL",
        "ROLLOUT_GATE_KEY",
        "ROLLOUT_INDEX_URL",
        "ROLLOUT_DESKTOPS_TOKEN",
        "ROLLOUT_EMBEDDINGS_KEY",
        "ROLLOUT_RETRIEVER_TOKEN",
        "ROLLOUT_ROLE_KEYS",
        "ROLLOUT_SEARCH_KEY",
        "ROLLOUT_SEARCH_URL",
        "ROLLOUT_SERVICE_TOKENS",
    }
)
_END_SECONDS = 10.0
"""From SIGKILL to the end of a process."""
_STOPPED = ("T", "t")
"""States of a process that runs nothing: stopped, and stopped for a debugger."""
_ENDED = ("Z", "X")
"""States of a process that has ended but was not yet waited for."""


def environment_for_guests() -> dict[str, str]:
    """Returns this process's environment for programs that face a guest: without the keys and passwords of this project."""
    return {name: value for name, value in os.environ.items() if name not in _SECRETS}


def this_process() -> str:
    """Returns this process's name: machine, process id and start time; empty where the system does not tell."""
    return _own_name(os.getpid())


def name_of(pid: int) -> str:
    """Returns the name of a process, of the form of `this_process`; empty where there is none, or the system does not tell."""
    fields = _fields_of(pid)
    return f"{machine()}:{pid}:{fields[_BEGAN]}" if fields and machine() else ""


@lru_cache(maxsize=1)
def machine() -> str:
    """Returns a name of this boot of this machine and of this process's PID namespace; empty where unknown.

    Processes with the same name see each other under the same process ids.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        namespace = (_PROC / "self/ns/pid").readlink()
        shown = int((_PROC / "self").readlink().name)
    except (OSError, ValueError):
        return ""
    if shown != os.getpid():  # /proc belongs to another namespace
        return ""
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]


def has_ended(process: str) -> bool:
    """Whether a process has surely ended: False also when this process cannot know.

    Args:
        process: Its name, from `this_process` or `name_of`.
    """
    where, _, rest = process.partition(":")
    if not where or where != machine():
        return False
    pid, _, began = rest.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False  # another user's process, which exists
    fields = _fields_of(int(pid))
    return bool(fields) and (fields[_STATE] in _ENDED or fields[_BEGAN] != began)


def is_stopped(pid: int) -> bool:
    """Whether a process stands still since a signal, such as SIGSTOP, has stopped it."""
    return _fields_of(pid)[_STATE : _STATE + 1] == ["T"]


def command_lines(*also: int) -> Iterator[tuple[int, list[str]]]:
    """Yields the process id and the command line of every other process of this user.

    Anybody's process may say anything in its command line.

    Args:
        also: Ids of more users whose processes count.
    """
    users = {os.geteuid(), *also}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if _user_of(entry) in users:
                    yield int(entry.name), (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")


def ends_within(process: int, seconds: float) -> bool:
    """Waits for the end of a process.

    Args:
        process: Its descriptor, from `os.pidfd_open`.
        seconds: The longest wait.
    """
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(max(seconds, 0.0) * 1000))


def kill(pid: int, seconds: float) -> None:
    """Kills a process and waits for its end; harmless if it has ended.

    Raises:
        TimeoutError: It does not end within `seconds`.
    """
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            if not ends_within(process, seconds):
                raise TimeoutError(f"process {pid} does not end within {seconds:.0f} s after SIGKILL")
        finally:
            os.close(process)


def run_within(
    command: Sequence[str], seconds: float, *, cwd: str | None = None, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Runs a command without input; returns its exit code and messages. Nothing is left of it, whatever interrupts this.

    Args:
        command: It may start one further process, as bubblewrap, `unshare` and `timeout` do.
        seconds: How long it may take.
        cwd: The folder that it runs in, if not this process's.
        env: Its environment, if not this process's.

    Raises:
        subprocess.TimeoutExpired: It takes longer.
    """
    with subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
        process_group=0,  # Ctrl-C would end one of its processes only
    ) as process:
        try:
            _, messages = process.communicate(timeout=seconds)
        finally:
            end_with_children(process, _END_SECONDS)
    return process.returncode, messages.decode(errors="replace")


def end_with_children(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Kills a process of this one and its children, unless it has ended, and waits for their end.

    Raises:
        TimeoutError: One of them does not end within `seconds`.
    """
    if process.poll() is None:  # else its id may be another process's by now
        kill_with_children(process.pid, seconds)
        process.wait()


def kill_with_children(pid: int, seconds: float) -> None:
    """Kills a process and its children, and waits for their end; harmless if it has ended.

    It is stopped first, so that no child is missed: one that it starts meanwhile might outlive it, also where that child
    asks the kernel to die with it, which helps from then on only. Stopped, it waits for no child, so that their ids
    remain theirs.

    Raises:
        TimeoutError: One of them does not end within `seconds`.
    """
    watched: list[int] = []
    try:
        with suppress(ProcessLookupError):
            try:
                os.kill(pid, signal.SIGSTOP)
                _await_stop(pid, seconds)
                for child in children_of(pid):
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                        watched.append(os.pidfd_open(child))
            finally:  # whatever happens, it does not remain stopped
                try:
                    watched.append(os.pidfd_open(pid))
                finally:
                    os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + seconds
        if not all(ends_within(process, deadline - time.monotonic()) for process in watched):
            raise TimeoutError(f"process {pid} or a child of it does not end within {seconds:.0f} s after SIGKILL")
    finally:
        for process in watched:
            os.close(process)


def children_of(pid: int) -> list[int]:
    """Returns the ids of the processes that any thread of a process has started, and that were not yet waited for."""
    children: list[int] = []
    with suppress(OSError):  # it has ended
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                children.extend(map(int, (thread / "children").read_text("ascii").split()))
    return children


def _await_stop(pid: int, seconds: float) -> None:
    """Waits until a process has stopped or ended, or cannot be stopped in time: SIGKILL may still end it."""
    deadline = time.monotonic() + seconds
    while (fields := _fields_of(pid)) and fields[_STATE] not in (*_STOPPED, *_ENDED) and time.monotonic() < deadline:
        time.sleep(0.001)


@lru_cache(maxsize=1)
def _own_name(pid: int) -> str:
    return name_of(pid)


def _user_of(process: Path) -> int:
    """Returns a process's real user; its folder seems to be root's if it keeps others from looking into its memory."""
    status = (process / "status").read_text("utf-8", "replace")
    return int(status.partition("\nUid:")[2].split(maxsplit=1)[0])


def _fields_of(pid: int) -> list[str]:
    """Returns the fields after the command's name, which may contain anything; empty where they cannot be read."""
    try:
        return (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
