"""The walls as the kernel reports them from outside, and the limits as the code inside reads them."""

from __future__ import annotations

import ast
import errno
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollout_tasks.cells.system_calls import NUMBERS
from rollout_tasks.environments.py import PyEnvironment
from rollout_tasks.environments.sandbox import bubblewrap, program
from rollout_tasks.environments.sandbox.interpreter import Interpreter, InterpreterStopped, SandboxLimits
from tests.parted_bubblewrap import put_parted_bubblewrap
from tests.virtual_machines import processes_naming, wait_until

LIMITS = SandboxLimits(
    seconds=60,
    cpu_seconds=77,
    memory_bytes=300 * 2**20,
    scratch_bytes=3 * 2**20,
    scratch_files=30,
    output_characters=100,
)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    try:
        PyEnvironment.check_available()
    except RuntimeError as reason:
        pytest.skip(str(reason))
    interpreter = Interpreter(LIMITS)
    yield interpreter
    interpreter.stop()


@pytest.fixture(scope="module")
def inside(interpreter: Interpreter) -> psutil.Process:
    """The process that runs the code, seen from outside."""
    python = str(Path(sys.executable).resolve())
    for child in psutil.Process().children(recursive=True):
        if child.exe() == python and child.cmdline()[-5:-4] == ["/program.py"]:
            return child
    raise AssertionError("no process runs the guest's program")


def said(interpreter: Interpreter, code: str) -> Any:
    output = interpreter.run([code])
    assert output.ok, output.text
    return ast.literal_eval(output.text)


def locks_of(pid: int) -> int:
    """How many file locks the kernel has of a process."""
    return sum(line.split()[-4] == str(pid) for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.parametrize("namespace", ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"])
def test_it_has_every_namespace_for_itself(inside: psutil.Process, namespace: str) -> None:
    theirs = Path(f"/proc/{inside.pid}/ns/{namespace}").readlink()

    assert theirs != Path(f"/proc/self/ns/{namespace}").readlink()


def test_it_has_no_capability_and_can_gain_none(inside: psutil.Process) -> None:
    status = Path(f"/proc/{inside.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)

    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name], 16) == 0, name
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"


def test_it_is_nobody_on_a_machine_without_a_name(interpreter: Interpreter) -> None:
    seen = said(interpreter, "import os\n(os.getresuid(), os.getresgid(), os.uname().nodename)")

    assert seen == ((65534,) * 3, (65534,) * 3, "sandbox")


def test_it_leads_no_session_of_ours(inside: psutil.Process) -> None:
    assert os.getsid(inside.pid) != os.getsid(0)


def test_every_limit_is_set_and_cannot_be_raised(interpreter: Interpreter) -> None:
    expected = {
        "AS": 300 * 2**20,
        "CPU": 77,
        "FSIZE": 3 * 2**20,
        "NOFILE": 64,
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "SIGPENDING": 64,
    }
    for name, most in expected.items():
        seen = said(interpreter, f"import resource\nresource.getrlimit(resource.RLIMIT_{name})")
        assert seen == (most, most), name


def test_it_leases_no_file_of_the_host(interpreter: Interpreter) -> None:
    """A lease would stop every program of the host that opens the file."""
    lease = (
        "import fcntl, signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "def leased():\n    try:\n        return fcntl.fcntl(open('/etc/ld.so.cache', 'rb'), fcntl.F_SETLEASE, fcntl.F_RDLCK)\n"
        "    except OSError as error:\n        return error.errno\nleased()"
    )

    assert said(interpreter, lease) == errno.EINVAL


def test_its_locks_of_files_take_no_memory_of_the_kernel(interpreter: Interpreter, inside: psutil.Process) -> None:
    lock = (
        "import fcntl, os\nmine = open('mine', 'w')\nos.unlink('mine')\n"
        "for number in range(100): fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * number)\n7"
    )

    assert said(interpreter, lock) == 7
    assert locks_of(inside.pid) == 0
    assert said(interpreter, "fcntl.flock(mine, fcntl.LOCK_EX)\n8") == 8
    assert locks_of(inside.pid) == 1, "one for an open file at most"
    assert said(interpreter, "mine.close()\n9") == 9


def test_its_databases_are_locked_all_the_same(interpreter: Interpreter) -> None:
    """SQLite keeps connections of one process apart by itself."""
    told = (
        "import os, sqlite3\none, other = (sqlite3.connect('some.db', timeout=0) for _ in range(2))\n"
        "one.execute('create table numbers (n)')\none.execute('insert into numbers values (7)')\n"
        "def refused():\n    try:\n        other.execute('insert into numbers values (8)')\n"
        "    except sqlite3.OperationalError as error:\n        return str(error)\n"
        "answer = refused()\none.commit()\nrows = other.execute('select n from numbers').fetchall()\n"
        "one.close()\nother.close()\nos.unlink('some.db')\n[answer, rows]"
    )

    assert said(interpreter, told) == ["database is locked", [(7,)]]


def test_no_command_to_a_device_has_the_host_load_a_module(interpreter: Interpreter) -> None:
    """The filter refuses them even for no descriptor at all, of which the kernel would say just that."""
    seen = said(
        interpreter,
        "import fcntl, os\n"
        "def told(descriptor, command):\n    try:\n        return fcntl.ioctl(descriptor, command, bytes(4))[0]\n"
        "    except OSError as error:\n        return -error.errno\n"
        "readable, writable = os.pipe()\nwaiting = os.write(writable, b'seven b') and told(readable, 0x541b)\n"
        "os.close(readable)\nos.close(writable)\n"
        "refused = (0x5423, 0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89a0, 0x89a1)\n"
        "[told(60, command) for command in (*refused, 0x5401, 0x5413)] + [waiting]",
    )

    assert seen == [-errno.EINVAL] + [-errno.ENOTTY] * 8 + [-errno.EBADF] * 2 + [7]


def test_it_has_no_memory_that_could_be_shared_and_is_then_counted_for_nobody(interpreter: Interpreter) -> None:
    mapped = (
        "import mmap\ndef mapped(flags):\n    try:\n        return len(mmap.mmap(-1, 4096, flags))\n"
        "    except OSError as error:\n        return -error.errno\n"
        "[mapped(flags) for flags in (0x21, 0x22)]"
    )

    assert said(interpreter, mapped) == [-errno.EPERM, 4096]


def test_its_timers_are_few(interpreter: Interpreter) -> None:
    made = said(
        interpreter,
        "import ctypes\nlibc, timer, made = ctypes.CDLL(None), ctypes.c_void_p(), 0\n"
        "while made < 1000 and libc.timer_create(0, None, ctypes.byref(timer)) == 0: made += 1\nmade",
    )

    assert made <= 64


def test_only_its_folder_can_be_written_and_is_as_large_as_said(
    interpreter: Interpreter, inside: psutil.Process
) -> None:
    mounts = {}
    for line in Path(f"/proc/{inside.pid}/mountinfo").read_text().splitlines():
        fields = line.split()
        mounts[fields[4]] = fields[5].split(",")

    assert [place for place, options in mounts.items() if "rw" in options] == ["/tmp"]  # noqa: S108
    assert all("nosuid" in options for options in mounts.values())
    assert "/program.py" in mounts
    size = "import os\nroom = os.statvfs('/tmp')\n(room.f_blocks * room.f_frsize, os.getcwd(), os.listdir('/tmp'))"
    assert said(interpreter, size) == (3 * 2**20, "/tmp", [])  # noqa: S108


def test_time_zones_are_there(interpreter: Interpreter) -> None:
    if not Path("/usr/share/zoneinfo/Europe/Berlin").exists():
        pytest.skip("this machine has no time zones")
    assert said(interpreter, "import zoneinfo\nstr(zoneinfo.ZoneInfo('Europe/Berlin'))") == "Europe/Berlin"


def test_nothing_is_open_in_it_but_its_channel(inside: psutil.Process) -> None:
    targets = [str(link.readlink()).split(":")[0] for link in sorted(Path(f"/proc/{inside.pid}/fd").iterdir())]

    assert sorted(targets) == ["pipe", "pipe", "pipe", "socket", "socket"]


def test_the_interpreter_is_bare(interpreter: Interpreter) -> None:
    flags = (
        "import sys\n[getattr(sys.flags, name) for name in ('isolated', 'no_site', 'dont_write_bytecode', 'utf8_mode')]"
    )

    assert said(interpreter, flags) == [1, 1, 1, 1]
    assert said(interpreter, "sys.argv") == ["/program.py"]
    assert said(interpreter, "import os\ndict(os.environ)") == {"HOME": "/tmp", "LANG": "C.UTF-8", "PWD": "/tmp"}  # noqa: S108
    assert said(interpreter, "__name__") == "__main__"


def test_the_last_value_is_kept_under_its_usual_name(interpreter: Interpreter) -> None:
    assert interpreter.run(["20 + 1", "print(_ * 2)", "None", "print(_)", "x = 5", "_"]).text == "21\n42\n21\n21\n"


def test_what_is_printed_beyond_the_limit_is_counted(interpreter: Interpreter) -> None:
    text = interpreter.run(["import sys\nprint('a' * 60)\nprint('b' * 60, file=sys.stderr)\nprint('c')"]).text

    assert text == "a" * 60 + "\n" + "b" * 39 + "\n... 24 more characters cut off"


def test_a_traceback_shows_the_last_frames(interpreter: Interpreter) -> None:
    text = interpreter.run(["def f(n):\n    return f(n + 1) if n < 90 else 1 / 0\nf(0)"])
    assert not text.ok
    cut = Interpreter(SandboxLimits(seconds=60))
    try:
        lines = cut.run(["def f(n):\n    return f(n + 1) if n < 90 else 1 / 0", "def g():\n    f(0)", "g()"]).text
    finally:
        cut.stop()

    assert lines.splitlines()[0] == "Traceback (most recent call last):"
    assert lines.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "in g" not in lines


def test_a_syntax_error_has_no_frames(interpreter: Interpreter) -> None:
    text = interpreter.run(["(1 +"]).text

    assert text.startswith('  File "<expression ')
    assert "Traceback" not in text
    assert "SyntaxError" in text


def test_files_beyond_the_limit_stop_it_and_not_one_before() -> None:
    interpreter = Interpreter(LIMITS)
    try:
        count = "import os\nfor n in range({}): os.mkdir(str(n))\nimport time\ntime.sleep(1)"
        assert interpreter.run([count.format(28)]).ok
        with pytest.raises(InterpreterStopped, match="it made more than 30 files"):
            interpreter.run(["os.mkdir('x'), os.mkdir('y'), time.sleep(30)"])
    finally:
        interpreter.stop()


def test_signals_of_a_workers_terminal_do_not_reach_it(interpreter: Interpreter) -> None:
    assert os.getsid(interpreter._process.pid) == interpreter._process.pid


def test_it_has_none_of_its_workers_streams(interpreter: Interpreter) -> None:
    process = Path(f"/proc/{interpreter._process.pid}/fd")
    assert {name: (process / name).readlink().name.partition(":")[0] for name in "012"} == {
        "0": "socket", "1": "socket", "2": "pipe"
    }  # fmt: skip


def test_who_has_ended_is_told_by_its_end_when_something_is_sent() -> None:
    interpreter = Interpreter(SandboxLimits(seconds=60))
    try:
        interpreter._process.kill()
        interpreter._process.wait()
        with pytest.raises(InterpreterStopped, match="it was killed by signal 9"):
            for _ in range(1000):  # what runs inside ends with it, a moment later
                interpreter._send(b" ")
                time.sleep(0.01)
    finally:
        interpreter.stop()


def test_who_does_not_read_is_not_waited_for() -> None:
    interpreter = Interpreter(SandboxLimits(seconds=60))
    try:
        interpreter.run(["0"])  # and is stopped until the next call
        with pytest.raises(InterpreterStopped, match="it does not read what it is sent"):
            for _ in range(100):
                interpreter._send(b" " * 60_000)
        with pytest.raises(InterpreterStopped, match="it does not read what it is sent"):
            for _ in range(100_000):  # until not one byte finds room
                interpreter._send(b" ")
    finally:
        interpreter.stop()


def test_nothing_goes_on_between_calls() -> None:
    interpreter = Interpreter(SandboxLimits(seconds=60))
    busy = (
        "import os, signal\nmade = 0\ndef again(*_):\n    global made\n    made += 1\n    os.mkdir(str(made))\n"
        "signal.signal(signal.SIGALRM, again)\nsignal.setitimer(signal.ITIMER_REAL, 0.01, 0.001)\n0"
    )
    try:
        interpreter.run([busy])
        before = len(os.listdir(interpreter._scratch))  # noqa: PTH208  (a descriptor)
        time.sleep(0.5)
        assert len(os.listdir(interpreter._scratch)) == before  # noqa: PTH208
        assert (
            interpreter.run(["signal.setitimer(signal.ITIMER_REAL, 0)\nimport time\n'on again'"]).text == "'on again'\n"
        )
    finally:
        interpreter.stop()


def test_the_time_of_a_call_is_its_own() -> None:
    interpreter = Interpreter(SandboxLimits(seconds=1.5))
    began = time.monotonic()
    try:
        with pytest.raises(InterpreterStopped, match=r"no result within 1\.5 s"):
            interpreter.run(["import time\ntime.sleep(600)"])
    finally:
        interpreter.stop()
    assert time.monotonic() - began > 1.5


def test_both_processes_of_bubblewrap_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_parted_bubblewrap(tmp_path / "programs", monkeypatch)
    interpreter = Interpreter(replace(LIMITS, scratch_bytes=2_345_679))
    assert processes_naming(" 2345679 ")
    assert interpreter.run(["1"]).ok  # it is stopped now: the end of its channel does not end it
    interpreter.stop()

    wait_until(lambda: processes_naming(" 2345679 ") == [], seconds=5)


def test_a_stopped_interpreter_says_how_it_ended() -> None:
    interpreter = Interpreter(SandboxLimits(seconds=60))
    with pytest.raises(InterpreterStopped, match="it ended with exit status 127"):
        interpreter.run(["import os\nos._exit(127)"])
    with pytest.raises((InterpreterStopped, OSError)):
        interpreter.run(["1"])


def test_the_greeting_hands_over_the_folder_that_is_counted(interpreter: Interpreter) -> None:
    said(interpreter, "open('here', 'w').write('x')")

    assert os.listdir(interpreter._scratch) == ["here"]  # noqa: PTH208  (a descriptor)
    said(interpreter, "import os\nos.unlink('here')\n0")


def test_the_largest_request_that_is_allowed_is_run(interpreter: Interpreter) -> None:
    empty = len(b'["#"]\n')

    assert interpreter.run(["#" * (60_000 - empty + 1)]).ok
    with pytest.raises(ValueError, match="60001 bytes of code are more than the 60000 allowed"):
        interpreter.run(["#" * (60_000 - empty + 2)])


def test_the_limits_of_an_episode_are_those_documented() -> None:
    assert SandboxLimits() == SandboxLimits(10.0, 120, 512 * 2**20, 16 * 2**20, 1_000, 20_000)


def test_the_filter_is_read_to_its_end_from_its_descriptor() -> None:
    descriptor = bubblewrap.filter_descriptor()
    try:
        assert os.read(descriptor, 100_000) == bubblewrap.seccomp.program(bubblewrap.SYSTEM_CALLS)
        assert os.read(descriptor, 1) == b""
    finally:
        os.close(descriptor)


def test_a_complaint_is_quoted_on_one_line_and_not_at_length() -> None:
    assert "cannot isolate here (a b)" in bubblewrap.reason_of("a\n  b\n")
    assert "cannot isolate here (no reason given)" in bubblewrap.reason_of(" \n")
    assert len(bubblewrap.reason_of("x" * 10_000)) < 700
    assert bubblewrap.reason_of("Unknown option --x").startswith(
        "running Python safely needs bubblewrap 0.7 or newer: U"
    )


@pytest.mark.parametrize(("system", "machine"), [("darwin", "x86_64"), ("linux", "riscv64")])
def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)

    with pytest.raises(bubblewrap.SandboxUnavailable, match="needs Linux on x86_64 or aarch64"):
        Interpreter()


def test_libraries_are_mounted_as_they_are_on_the_host(tmp_path: Path) -> None:
    link = tmp_path / "lib64"
    link.symlink_to("usr/lib64")

    assert bubblewrap._library(link) == ["--symlink", "usr/lib64", str(link)]
    assert bubblewrap._library(tmp_path) == ["--ro-bind", str(tmp_path), str(tmp_path)]
    assert bubblewrap._library(tmp_path / "none") == []


def test_kept_output_is_as_long_as_said() -> None:
    captured = program.Captured(5)

    assert captured.writable()
    assert [captured.write(text) for text in ("abc", "", "def", "gh")] == [3, 0, 3, 2]
    assert captured.text() == "abcde\n... 3 more characters cut off"


def refused_numbers() -> list[int]:
    """Every number of x86_64 that stands for no call on the list, and some that stand for none at all.

    Without the two of the kernel's own probes, which no filter sees and which end whoever has none.
    """
    allowed = {NUMBERS[name][0] for name in bubblewrap.SYSTEM_CALLS} | {335, 336}
    return [number for number in range(600) if number not in allowed]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
def test_the_kernel_refuses_every_call_that_is_not_on_the_list(interpreter: Interpreter) -> None:
    seen = said(
        interpreter,
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(number):\n    return libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno()\n"
        f"[number for number in {refused_numbers()!r} if call(number) != (-1, 1)]",
    )

    assert seen == []
    assert len(refused_numbers()) > 400


@pytest.mark.parametrize(
    "name",
    [
        "clone",
        "clone3",
        "fork",
        "vfork",
        "unshare",
        "setns",
        "mount",
        "statmount",
        "listmount",
        "socket",
        "socketpair",
        "memfd_create",
        "ptrace",
        "bpf",
        "io_uring_setup",
        "userfaultfd",
        "inotify_init1",
        "keyctl",
        "personality",
        "shmget",
        "semget",
        "msgget",
        "mq_open",
        "open_by_handle_at",
        "name_to_handle_at",
    ],
)
def test_what_has_no_place_in_a_sandbox_is_not_on_the_list(name: str) -> None:
    assert name not in bubblewrap.SYSTEM_CALLS
