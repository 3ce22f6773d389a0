"""Whether a process has ended, as another one on the same machine can tell, and whose processes are looked at and killed."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import AliasChoices

from rollout_tasks.settings import Settings
from tests.virtual_machines import processes_naming, wait_until
from vm_pool import processes
from vm_pool.processes import (
    children_of,
    command_lines,
    end_with_children,
    environment_for_guests,
    has_ended,
    kill,
    kill_with_children,
    machine,
    this_process,
)
from vm_pool.providers.desktop_env.keeper_client import PROGRAM, end_keepers_of
from vm_pool.providers.desktop_env.keeper_files import record_of
from vm_pool.providers.qemu import folders


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    for cache in (machine, processes._own_name):
        cache.cache_clear()
    yield
    for cache in (machine, processes._own_name):
        cache.cache_clear()


def name_of(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return f"{machine()}:{pid}:{stat[stat.rindex(')') + 2 :].split()[19]}"


def test_a_process_says_machine_number_and_beginning() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").readlink()

    assert machine() == hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]
    assert this_process() == name_of(os.getpid())


def test_one_that_runs_has_not_ended_until_it_has() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        said = name_of(sleeper.pid)
        assert not has_ended(said)
        assert has_ended(said + "1"), "another process has its number by now"
        sleeper.kill()
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(said), "nobody has waited for it yet"
    assert has_ended(said)


def test_a_child_says_another_name_than_its_parent() -> None:
    before = this_process()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, this_process().encode())
        finally:
            os._exit(0)
    own = os.read(reading, 100).decode()
    os.waitpid(child, 0)
    for end in (reading, writing):
        os.close(end)

    assert own.startswith(f"{machine()}:{child}:")
    assert own != before


@pytest.mark.parametrize("said", ["", ":", "elsewhere:1:2", "{machine}:no-number:1", "{machine}:" + "9" * 30 + ":1"])
def test_of_what_nobody_here_can_know_no_end_is_said(said: str) -> None:
    assert not has_ended(said.format(machine=machine()))


def test_where_nothing_can_be_read_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = this_process()
    monkeypatch.setattr(processes, "_PROC", tmp_path)

    assert not has_ended(said), "this machine is known already, but not its processes"
    machine.cache_clear()
    processes._own_name.cache_clear()
    assert (machine(), this_process()) == ("", "")
    assert not has_ended(":1:1")


def test_processes_of_another_namespace_are_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b\n")
    (tmp_path / "1/ns").mkdir(parents=True)
    (tmp_path / "1/ns/pid").symlink_to("pid:[1]")
    (tmp_path / "self").symlink_to("1")
    monkeypatch.setattr(processes, "_PROC", tmp_path)

    assert machine() == ""


ANOTHER_USER = 412_345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")


@contextmanager
def running(user: int, *words: str, name: str = "sh") -> Iterator[subprocess.Popen[bytes]]:
    """A process of a user, with these words in its command line."""
    command = [name, "-c", "echo; read -r _", *words]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, executable="/bin/sh", **pipes, user=user, cwd="/", process_group=0) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@needs_root
def test_command_lines_are_those_of_this_user_as_anybody_may_write_anything_there() -> None:
    with running(ANOTHER_USER, "a word") as others, running(os.geteuid(), "a word") as own:
        ids = {others.pid, own.pid}
        assert {pid for pid, words in command_lines() if "a word" in words} & ids == {own.pid}
        assert {pid for pid, words in command_lines(ANOTHER_USER) if "a word" in words} & ids == ids


@needs_root
def test_of_a_qemu_only_root_and_whom_it_switches_to_count(tmp_path: Path) -> None:
    switched = folders.unprivileged()
    assert switched is not None
    folder = str(tmp_path)
    with (
        running(ANOTHER_USER, folder, name="qemu-x"),
        running(switched.pw_uid, folder, name="qemu-x") as qemu,
        running(0, folder, name="qemu-x") as starting,
    ):
        assert set(folders.processes_of(tmp_path)) == {qemu.pid, starting.pid}


@needs_root
def test_what_another_user_calls_a_keeper_is_neither_waited_for_nor_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    record = str(record_of("vmware", "box-0"))
    with running(ANOTHER_USER, PROGRAM, record) as others, running(os.geteuid(), PROGRAM, record) as own:
        end_keepers_of("vmware", "box-0", 0.1, kill=True)
        assert own.wait(10) == -9
        assert others.poll() is None


def secrets_of_this_project() -> Iterator[str]:
    """The variables of every setting that is secret, and those that are read elsewhere."""
    yield from ("SCRIPTED_MODEL_API_KEY", "ROLLOUT_DESKTOPS_TOKEN", "ROLLOUT_GATE_KEY")
    for field in Settings.model_fields.values():
        if "SecretStr" in str(field.annotation):
            alias = field.validation_alias
            yield from map(str, alias.choices if isinstance(alias, AliasChoices) else [alias])


SECRETS = tuple(secrets_of_this_project())


def test_the_secrets_are_known() -> None:
    assert {"OPENAI_API_KEY", "REDIS_URL", "CELERY_BROKER_URL", "ROLLOUT_SERVICE_TOKENS"} < set(SECRETS)


def test_who_faces_a_guest_knows_no_secret_of_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, "HARMLESS"):
        monkeypatch.setenv(name, "word")

    given = environment_for_guests()

    assert [name for name, value in given.items() if value == "word"] == ["HARMLESS"]


def test_a_process_that_does_not_end_when_it_is_killed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        with monkeypatch.context() as patch:
            patch.setattr(processes, "ends_within", lambda *_: False)  # as while its disk does not answer
            with pytest.raises(TimeoutError, match=f"^process {sleeper.pid} does not end within 3 s after SIGKILL$"):
                kill(sleeper.pid, 3)
        kill(sleeper.pid, 20)
        assert sleeper.wait() == -9
    kill(sleeper.pid, 0)


def test_a_process_is_killed_with_its_children() -> None:
    code = "sleep 1000 & sleep 1000 & echo; read -r _"
    with subprocess.Popen(["sh", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = children_of(process.pid)
        assert len(children) == 2
        kill_with_children(process.pid, 10)
        assert process.wait(10) == -9
    assert all(processes._fields_of(child)[:1] in ([], ["Z"]) for child in children)
    kill_with_children(process.pid, 10)


def test_a_process_that_starts_others_all_the_time_leaves_none() -> None:
    child = f"sleep 9{os.getpid()}"
    with subprocess.Popen(["sh", "-c", f"while :; do {child} & done"], stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(processes_naming(child)) > 10)
        kill_with_children(process.pid, 10)
    time.sleep(0.2)  # one that was forked last may not have its name yet
    left = processes_naming(child)
    for line in left:
        with suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)
    assert left == []


IN_PLACE_OF_ANOTHER = """
import subprocess
from pathlib import Path
from vm_pool.processes import end_with_children
first = subprocess.Popen(["true"])
first.wait()
Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
second = subprocess.Popen(["sleep", "1000"])
assert second.pid == first.pid
end_with_children(first, 10)
try:
    print("ended", second.wait(0.2))
except subprocess.TimeoutExpired:
    print("lives")
"""


@needs_root
def test_another_process_that_has_the_id_of_one_that_ended_is_left_alone() -> None:
    namespace = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        sys.executable,
        "-c",
        IN_PLACE_OF_ANOTHER,
    ]
    done = subprocess.run(namespace, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "lives\n", done.stderr


@pytest.fixture
def unstoppable(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that can be killed but not stopped: it waits for the program of a child, which waits for a file's writer."""
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    actions = f"[(os.POSIX_SPAWN_OPEN, 0, {fifo!r}, os.O_RDONLY, 0)]"
    code = f"import os; print(flush=True); os.posix_spawn('/bin/true', ['true'], {{}}, file_actions={actions})"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(
            lambda: children_of(process.pid) and psutil.Process(process.pid).status() == psutil.STATUS_DISK_SLEEP
        )
        yield process
        process.kill()
    with suppress(OSError):
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))  # its child goes on, and ends


def test_one_that_cannot_be_stopped_is_killed_all_the_same(unstoppable: subprocess.Popen[bytes]) -> None:
    end_with_children(unstoppable, 1)
    assert unstoppable.returncode == -9


def test_one_whose_end_is_interrupted_does_not_remain_stopped(unstoppable: subprocess.Popen[bytes]) -> None:
    class Interrupted(Exception):
        """No OSError: where it comes while a file of /proc is read, it is not taken for that."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Interrupted):
            end_with_children(unstoppable, 60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert unstoppable.wait(10) == -9
