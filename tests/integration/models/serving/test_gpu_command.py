"""`rollouts gpu` where NVIDIA's driver gives recorded answers: the processes on its GPUs are real, and really end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from rollout_tasks.cli import gpu, program
from rollout_tasks.models.serving.process_end import ProcessEnd
from tests.conftest import REPOSITORY
from vm_pool.processes import name_of

MIB = 1 << 20
SECONDS = 30.0
WORKER = "VLLM::EngineCore"
NOBODY = 65_534
"""A user's id."""
STUBBORN = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(__file__).with_suffix(".ready").touch()
time.sleep(600)
"""
KEEPER = """
import os, pathlib, sys, time
from rollout_tasks.cleanup_process import CleanupProcess
from rollout_tasks.models.serving.server_process import ServerProcess
cleanup = CleanupProcess()
ServerProcess(["bash", "-c", sys.argv[1]], dict(os.environ), pathlib.Path(sys.argv[2]), cleanup)
print(cleanup._process.pid, flush=True)
time.sleep(600)
"""
"""Starts a server as `rollouts model serve` does."""


def until(found: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (value := found()):
        assert time.monotonic() < deadline, f"no {what} within {SECONDS:g} s"
        time.sleep(0.01)
    return value


def lives(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Done(NamedTuple):
    """What the command has said, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


class Machine:
    """Processes of a test, and GPUs on which they have memory."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._patch, self._captured = patch, captured
        self._started: list[psutil.Process] = []
        self._answers = folder / "answers.json"
        patch.setenv("NVML_ANSWERS", str(self._answers))
        patch.syspath_prepend(REPOSITORY / "tests" / "nvml_answers")

    def server_with_worker(self, title: str = WORKER, worker: str = "sleep 600") -> tuple[int, int]:
        """Starts a server in a session of its own, whose worker has a title."""
        marker = self.folder / f"worker-{len(self._started)}"
        inner = f"echo $BASHPID > {marker}.new; mv {marker}.new {marker}; exec -a {title} {worker}"
        server = subprocess.Popen(
            ["bash", "-c", f"( {inner} ) & wait"], start_new_session=True, stdout=subprocess.DEVNULL
        )
        pid = int(until(lambda: marker.exists() and marker.read_text(), "worker"))
        self.owns(server.pid, pid)
        until(lambda: not psutil.Process(pid).cmdline()[0].startswith("bash"), "worker with its title")
        return server.pid, pid

    def left_over_worker(self, worker: str = "sleep 600") -> int:
        """Starts a server with a worker, and kills the server."""
        server, pid = self.server_with_worker(worker=worker)
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        return pid

    def owns(self, *pids: int) -> None:
        self._started += [psutil.Process(pid) for pid in pids]

    def gpus(self, *memory: dict[int, int], idle: int = 0, **more: Any) -> None:
        """Records what the driver answers: for each GPU, MiB by process."""
        devices = [
            {
                "name": "NVIDIA H100 80GB HBM3",
                "uuid": f"GPU-{number}",
                "total": 81_559 * MIB,
                "used": (sum(held.values()) + idle) * MIB,
                "compute": [{"pid": pid, "usedGpuMemory": size * MIB, **more} for pid, size in held.items()],
            }
            for number, held in enumerate(memory)
        ]
        self.answers({"devices": devices})

    def answers(self, answers: dict[str, Any]) -> None:
        self._answers.write_text(json.dumps(answers))

    def rollouts(self, *words: str, answers: str = "") -> Done:
        """Runs the command; each line of `answers` answers a question."""
        self._patch.setattr("sys.argv", ["gpu", *words])
        self._patch.setattr("sys.stdin", io.StringIO(answers))
        self._captured.readouterr()
        with pytest.raises(SystemExit) as ended:
            program.run(gpu.application)
        said = self._captured.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    def listed(self) -> dict[int, dict[str, Any]]:
        done = self.rollouts("list", "--json")
        assert done.returncode == 0, done.stderr
        return {one["pid"]: one for one in json.loads(done.stdout)["processes"]}

    def close(self) -> None:
        for process in self._started:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Machine]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = sys.modules.pop("pynvml", None)
    made = Machine(tmp_path, monkeypatch, capsys)
    yield made
    made.close()
    sys.modules.pop("pynvml", None)
    if before is not None:
        sys.modules["pynvml"] = before


def test_the_list_has_gpus_and_who_has_their_memory(machine: Machine) -> None:
    server, worker = machine.server_with_worker()
    orphan = machine.left_over_worker()
    machine.gpus({server: 500, worker: 40_000}, {worker: 1_000, orphan: 2_000})

    found, table = machine.listed(), machine.rollouts("list")

    assert (found[worker]["parent_gone"], found[worker]["left_over"]) == (False, "")
    assert found[worker]["memory_mib"] == {"0": 40_000, "1": 1_000}
    assert found[worker]["command"] == f"{WORKER} 600"
    assert found[worker]["user"] == psutil.Process().username()
    assert 0 <= found[worker]["seconds"] < 3_600
    assert (found[server]["parent_gone"], found[server]["left_over"]) == (False, "")
    assert found[orphan]["parent_gone"] is True
    assert found[orphan]["left_over"] == "it is a worker of a program that has ended"
    assert not any(one["started_by_model_serve"] for one in found.values())
    assert table.returncode == 0
    assert "81,559" in table.stdout
    assert str(orphan) in table.stdout
    assert max(map(len, table.stdout.splitlines())) > 100, "in a pipe, nothing is left out"


def test_a_program_that_runs_alone_is_not_left_over(machine: Machine) -> None:
    """As with nohup: whoever started it has ended, but it is nobody's worker."""
    server, alone = machine.server_with_worker(title="train.py")
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    machine.gpus({alone: 40_000})

    found = machine.listed()[alone]
    done = machine.rollouts("clean", "--yes")

    assert (found["parent_gone"], found["left_over"]) == (True, "")
    assert done.returncode == 0
    assert "no process that is left over has memory of a GPU" in done.stdout
    assert lives(alone)


def test_what_is_left_over_is_ended_after_a_yes(machine: Machine) -> None:
    first, other = machine.left_over_worker(), machine.left_over_worker()
    _, used = machine.server_with_worker()
    machine.gpus({first: 30_000, used: 10_000}, {other: 2_000})

    done = machine.rollouts("clean", answers="y\nno\n")

    assert done.returncode == 1, "one is still there"
    assert not lives(first)
    assert lives(other)
    assert lives(used)
    assert f"process {first} has ended" in done.stdout
    assert "GPU 0: 30,000 MiB came back; 10,000 of 81,559 MiB are in use" in done.stdout
    assert "GPU 1" not in done.stdout.partition("has ended")[2]
    assert str(used) not in done.stdout + done.stderr
    assert f"End process {first} of {psutil.Process().username()} ({WORKER} 600)?" in done.stderr


def test_nobody_who_answers_is_no_yes(machine: Machine) -> None:
    worker = machine.left_over_worker()
    machine.gpus({worker: 30_000})

    done = machine.rollouts("clean")

    assert done.returncode == 2
    assert done.stderr.endswith(
        "error: nobody answers on standard input: say --yes to end what is left over without being asked\n"
    )
    assert lives(worker)


def test_a_script_ends_all_without_being_asked(machine: Machine) -> None:
    workers = [machine.left_over_worker() for _ in range(2)]
    machine.gpus(dict.fromkeys(workers, 1_000))

    done = machine.rollouts("clean", "--yes")

    assert done.returncode == 0, done.stderr
    assert not any(map(lives, workers))
    assert "GPU 0: 2,000 MiB came back; 0 of 81,559 MiB are in use" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may end another user's processes")
def test_another_users_process_is_ended_only_after_a_yes(machine: Machine) -> None:
    become = f"setpriv --reuid={NOBODY} --clear-groups bash -c 'exec -a {WORKER} sleep 600'"
    worker = machine.left_over_worker(worker=become)
    until(lambda: psutil.Process(worker).cmdline() == [WORKER, "600"], "other user")
    user = psutil.Process(worker).username()
    machine.gpus({worker: 1_000})

    refused = machine.rollouts("clean", "--yes")
    assert (refused.returncode, lives(worker)) == (1, True)
    assert (
        f"process {worker} of {user} ({WORKER} 600): it is another user's: it is not ended with --yes" in refused.stderr
    )

    agreed = machine.rollouts("clean", answers="yes\n")
    assert (agreed.returncode, lives(worker)) == (0, False)


@pytest.mark.slow
def test_one_that_does_not_end_is_killed_after_another_yes(machine: Machine) -> None:
    script = machine.folder / "stubborn.py"
    script.write_text(STUBBORN)
    worker = machine.left_over_worker(worker=f"{sys.executable} {script}")
    until(script.with_suffix(".ready").exists, "process that ignores SIGTERM")
    machine.gpus({worker: 1_000})

    refused = machine.rollouts("clean", answers="y\nn\n")
    assert (refused.returncode, lives(worker)) == (1, True)
    assert "does not end within 25 s after SIGTERM" in refused.stdout
    assert "no memory came back" in refused.stdout

    killed = machine.rollouts("clean", answers="y\ny\n")
    assert (killed.returncode, lives(worker)) == (0, False)
    assert f"Kill process {worker} of " in killed.stderr
    assert "1,000 MiB came back" in killed.stdout


def kept_server(machine: Machine, log: Path, worker: str) -> tuple[psutil.Process, list[int]]:
    """Starts a server as `rollouts model serve` does; returns the process that did so, and the server and its worker."""
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, f"( exec -a {worker} sleep 600 ) & wait", str(log)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert keeper.stdout is not None
    cleanup = int(keeper.stdout.readline())
    keeper.stdout.close()
    process = psutil.Process(keeper.pid)
    server = next(child for child in process.children() if child.pid != cleanup)
    engine = until(lambda: [one for one in server.children() if one.cmdline()[0] == worker], "engine")[0]
    machine.owns(keeper.pid, cleanup, server.pid, engine.pid)
    return process, [server.pid, engine.pid]


def test_a_server_of_ours_is_known_and_left_alone_while_it_is_kept(machine: Machine) -> None:
    keeper, (server, engine) = kept_server(machine, machine.folder / "log", "a-title-of-its-own")
    machine.gpus({engine: 30_000})

    found = machine.listed()[engine]
    assert (found["started_by_model_serve"], found["left_over"]) == (True, "")

    for cleanup in [one for one in keeper.children() if one.pid != server]:
        cleanup.kill()  # it would end the server
    keeper.kill()
    until(lambda: not lives(keeper.pid), "end of the keeper")
    assert lives(engine), "nobody is left who ends it"

    found = machine.listed()[engine]
    assert found["left_over"] == "the rollouts model serve that started it has ended"
    done = machine.rollouts("clean", "--yes")
    assert done.returncode == 0, done.stderr
    assert not lives(server), "the engine's server has no memory of a GPU, and goes first"
    assert not lives(engine)
    assert "30,000 MiB came back" in done.stdout


def test_memory_that_no_process_has_is_named_and_nothing_is_reset(machine: Machine) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    machine.gpus({ended.pid: 700}, {}, idle=4_000, stays=True)

    listed, cleaned = machine.rollouts("list"), machine.rollouts("clean", "--yes")

    for done in (listed, cleaned):
        assert done.returncode == 0
        assert f"process {ended.pid} has 700 MiB of GPU 0, and is not to be seen here" in done.stderr
        assert "GPU 1: 4,000 MiB are in use, and the driver names no process that has them" in done.stderr


def test_a_gpu_that_is_lost_hides_no_other(machine: Machine) -> None:
    worker = machine.left_over_worker()
    lost = {"name": "A", "uuid": "GPU-a", "total": 0, "used": 0, "compute": [], "error": "GpuIsLost"}
    sound = {
        "name": "B",
        "uuid": "GPU-b",
        "total": 1_000 * MIB,
        "used": 300 * MIB,
        "compute": [{"pid": worker, "usedGpuMemory": None}],
        "graphics": [{"pid": worker, "usedGpuMemory": None}],
    }
    machine.answers({"devices": [lost, sound]})

    assert machine.listed()[worker]["memory_mib"] == {"1": None}
    done = machine.rollouts("list")
    assert "? MiB of GPU 1" in done.stdout
    assert done.stderr == "GPU 0: NVIDIA's driver says: GPU is lost\n"


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (
            {"init": "LibraryNotFound"},
            "this machine has no driver of NVIDIA's, or it is not loaded: NVML Shared Library",
        ),
        ({"init": "DriverNotLoaded"}, "this machine has no driver of NVIDIA's, or it is not loaded: Driver Not Loaded"),
        ({"init": "Unknown"}, "NVIDIA's driver does not answer: Unknown Error"),
        ({"devices": []}, "NVIDIA's driver shows no GPU here: a container must be given one"),
    ],
)
def test_without_a_driver_or_a_gpu_it_says_so(machine: Machine, answers: dict[str, Any], says: str) -> None:
    machine.answers(answers)

    done = machine.rollouts("clean")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {says}")
    assert done.stderr.count("\n") == 1


def test_another_process_with_the_same_id_is_not_ended() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        before, _, _ = name_of(process.pid).rpartition(":")
        with ProcessEnd(process.pid, f"{before}:1") as end:
            assert not end.there
            assert end.kill(0)
        assert process.poll() is None

        with ProcessEnd(process.pid, name_of(process.pid)) as end:
            assert end.there
            assert end.ask(SECONDS)
            assert not end.there
    finally:
        process.kill()
        process.wait()


def names_of(module: Any) -> Sequence[str]:
    return [name for name in dir(module) if name.lower().startswith("nvml")]


def test_the_recorded_answers_are_asked_as_the_package_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name that stands in for the package's is one that it has."""
    real = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    monkeypatch.syspath_prepend(REPOSITORY / "tests" / "nvml_answers")
    monkeypatch.delitem(sys.modules, "pynvml")
    import pynvml as recorded

    assert recorded is not real
    for name in names_of(recorded):
        # Classes of errors are made from the library's numbers.
        assert hasattr(real, name), name
    assert recorded.nvmlMemory_v2 == real.nvmlMemory_v2
