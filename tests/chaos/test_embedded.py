"""An embedded run that is interrupted or killed at each of its stages leaves nothing behind, loses nothing and can be resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from benchmark.report import read_report
from rollout_tasks.runs.folder import RunFolder
from tests.conftest import REPOSITORY

ITEMS = 12
INTERRUPTED = 130


class EmbeddedRun:
    """`submit.py --embedded` in a process of its own, with a mark by which everything it starts can be found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.results = folder / "results"
        self.mark = f"ROLLOUT_TEST_MARK={uuid.uuid4().hex}"
        data = folder / "items.jsonl"
        data.write_text("".join(json.dumps({"id": f"item-{n}", "question": "work"}) + "\n" for n in range(ITEMS)))
        self.config = folder / "run.json"
        settings = {
            "data": {"path": str(data)},
            "env_mode": "simulated",
            "output_dir": str(self.results),
            "run_id": "run",
            "num_rollouts": 3,
            "vm": {"num_vms": 2, "provider_options": {"boot_seconds": 0.05, "reset_seconds": 0.05}},
            "simulated": {"seconds": [0.4, 0.8]},
        }
        self.config.write_text(json.dumps(settings))

    def command(self, *options: str, program: Sequence[str] = ("scripts/submit.py",)) -> subprocess.Popen[str]:
        name, _, value = self.mark.partition("=")
        environment = {key: text for key, text in os.environ.items() if "REDIS_URL" not in key and "OPENAI" not in key}
        return subprocess.Popen(
            [sys.executable, *program, "--embedded", *options],
            cwd=REPOSITORY,
            env={**environment, name: value, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def start(self) -> subprocess.Popen[str]:
        return self.command("--config", str(self.config))

    def resume(self) -> str:
        process = self.command("--resume", str(self.results / "run"))
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        return output

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.results / "run")

    def committed(self) -> int:
        return len(list(self.run.path.glob("*/0/attempt-*/result.json")))

    def settled(self) -> int:
        """Rollouts with a verdict; a worker that is killed may have written a result and settled nothing."""
        return len(list(self.run.path.glob("*/0/result.json")))

    def processes(self) -> list[psutil.Process]:
        """Everything that carries the mark in its environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if self.mark.encode() in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    found.append(process)
            except (OSError, psutil.Error):
                continue
        return found

    def check_nothing_left(self, *, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.processes() and not any(self.temporary.iterdir()):
                return
            time.sleep(0.1)
        left = [" ".join(process.cmdline())[:120] for process in self.processes()]
        raise AssertionError(f"left behind: {left}, {list(self.temporary.iterdir())}")


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedRun]:
    run = EmbeddedRun(tmp_path)
    yield run
    for process in run.processes():
        process.kill()


def valkey_starts(run: EmbeddedRun) -> bool:
    return (run.run.path / "logs" / "valkey.log").exists()


def worker_starts(run: EmbeddedRun) -> bool:
    return (run.run.path / "logs" / "worker.log").exists()


def rollouts_run(run: EmbeddedRun) -> bool:
    return run.committed() >= 2


def last_rollouts_run(run: EmbeddedRun) -> bool:
    return run.committed() >= ITEMS - 1


STAGES = [
    pytest.param(valkey_starts, marks=pytest.mark.slow),
    pytest.param(worker_starts, marks=pytest.mark.slow),
    rollouts_run,
    pytest.param(last_rollouts_run, marks=pytest.mark.slow),
]


def wait_for(
    stage: Callable[[EmbeddedRun], bool],
    run: EmbeddedRun,
    process: subprocess.Popen[str],
    *,
    look_seconds: float = 0.005,
) -> None:
    deadline = time.monotonic() + 60
    while not stage(run):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"{stage.__name__} did not come"
        time.sleep(look_seconds)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@pytest.mark.parametrize("presses", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ctrl_c(embedded: EmbeddedRun, stage: Callable[[EmbeddedRun], bool], presses: int) -> None:
    process = embedded.start()
    wait_for(stage, embedded, process)

    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    output, _ = process.communicate(timeout=60)

    embedded.check_nothing_left(seconds=30)
    assert "Traceback" not in output
    done = embedded.run.evaluation.exists()
    if presses == 1 or not done:
        assert process.returncode == (0 if done else INTERRUPTED), output
    if process.returncode:  # told to stop at once, a worker may still write the report in the half second that it has
        assert process.returncode == INTERRUPTED, output
        assert "rollouts resume" in output
        committed = embedded.settled()
        assert f"Stopped: {committed} of {ITEMS}" in output
        if presses == 1 and stage is rollouts_run:
            assert 2 < committed < ITEMS, "the rollouts that ran were not finished, or new ones were admitted"
        embedded.resume()
        embedded.check_nothing_left(seconds=30)
    assert embedded.committed() == ITEMS
    assert read_report(embedded.run.evaluation)["summary"]["average_score"] == 1.0


@pytest.mark.slow
def test_a_second_command_leaves_a_run_alone_that_is_under_way(embedded: EmbeddedRun) -> None:
    process = embedded.start()
    wait_for(valkey_starts, embedded, process)
    process.send_signal(signal.SIGSTOP)  # so that it is not over before the second one looks

    second = embedded.command("--resume", str(embedded.run.path))
    said, _ = second.communicate(timeout=60)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=60)

    assert second.returncode == 2, said
    assert (
        said == f"error: another command is rolling out run run in {embedded.run.path}; try again once it has ended\n"
    )
    assert process.returncode == 0, output
    assert not list(embedded.run.path.glob("*/0/earlier-*"))
    assert embedded.committed() == ITEMS
    embedded.check_nothing_left(seconds=30)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_killed(embedded: EmbeddedRun, number: signal.Signals) -> None:
    process = embedded.start()
    wait_for(rollouts_run, embedded, process)

    process.send_signal(number)
    process.wait(timeout=60)

    embedded.check_nothing_left(seconds=30)
    embedded.resume()
    embedded.check_nothing_left(seconds=30)
    assert embedded.committed() == ITEMS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["valkey", "worker", "flower"])
def test_killed_while_it_starts_a_service(embedded: EmbeddedRun, name: str) -> None:
    for _ in range(3):
        process = embedded.start()
        wait_for(lambda run: (run.run.path / "logs" / f"{name}.log").exists(), embedded, process, look_seconds=0.0002)
        process.kill()
        process.wait(timeout=60)
        embedded.check_nothing_left(seconds=30)
        embedded.run.discard()


@pytest.mark.slow
def test_ctrl_c_at_its_first_moments(embedded: EmbeddedRun) -> None:
    for number in range(6):
        process = embedded.start()
        wait_for(lambda run: (run.run.path / "run.json").exists(), embedded, process)
        time.sleep(0.002 * number)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)

        assert (process.returncode, "Traceback" in output) == (INTERRUPTED, False), output
        begun = embedded.run.path.exists()  # else it was stopped while it wrote the folder, and has removed it
        assert (f"Stopped: 0 of {ITEMS}" if begun else "Stopped before anything was begun.") in output
        embedded.check_nothing_left(seconds=30)
        embedded.run.discard()


IGNORED = """
import os, signal, sys, weakref
from rollout_tasks.cli.submit_script import main
from rollout_tasks.embedded import run
from rollout_tasks.embedded.services import EmbeddedServices

where, name = (EmbeddedServices, sys.argv[1]) if hasattr(EmbeddedServices, sys.argv[1]) else (run, sys.argv[1])
step, done = getattr(where, name), []

class Thing: pass

def pressing(*arguments, **options):
    result = step(*arguments, **options)
    if not done:
        done.append(weakref.ref(Thing(), lambda _gone: (os.kill(os.getpid(), signal.SIGINT), sum(range(1000)))))
    return result

setattr(where, name, pressing)
sys.argv = ["submit.py", *sys.argv[2:]]
main()
"""
"""Presses Ctrl-C at the end of a step, where Python ignores what the handler raises."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["write_down", "start_valkey", "start_worker", "start_flower", "checked_client", "enqueue"]
)
def test_a_ctrl_c_that_python_ignores_stops_the_run_all_the_same(embedded: EmbeddedRun, step: str) -> None:
    process = embedded.command("--config", str(embedded.config), program=("-c", IGNORED, step))
    output, _ = process.communicate(timeout=60)

    assert (process.returncode, "Traceback" in output) == (INTERRUPTED, False), output
    assert f"Stopped: 0 of {ITEMS}" in output
    embedded.check_nothing_left(seconds=30)
    embedded.resume()
    assert embedded.committed() == ITEMS


def service(run: EmbeddedRun, word: str) -> psutil.Process:
    """The first process of a service, found by a word in its command line."""
    found = [process for process in run.processes() if word in " ".join(process.cmdline())]
    return min(found, key=lambda process: process.create_time())


@pytest.mark.slow
@pytest.mark.parametrize("word", ["valkey-server", " worker "])
def test_a_service_that_dies_stops_the_run_which_can_be_resumed(embedded: EmbeddedRun, word: str) -> None:
    process = embedded.start()
    wait_for(rollouts_run, embedded, process)
    service(embedded, word).kill()
    output, _ = process.communicate(timeout=30)

    assert process.returncode == 1, output
    assert f"error: {word.strip().removesuffix('-server')} ended by itself (exit code -9); see " in output
    assert f"of {ITEMS} rollouts are committed. Go on with: rollouts resume" in output
    embedded.check_nothing_left(seconds=30)
    embedded.resume()
    assert embedded.committed() == ITEMS


@pytest.mark.slow
def test_nobody_waits_for_a_flower_that_is_frozen(embedded: EmbeddedRun) -> None:
    process = embedded.start()
    wait_for(rollouts_run, embedded, process)
    service(embedded, " flower").suspend()
    wait_for(lambda run: run.run.report.exists(), embedded, process)
    output, _ = process.communicate(timeout=20)

    assert process.returncode == 0, output
    embedded.check_nothing_left(seconds=30)


@pytest.fixture
def scripted(embedded: EmbeddedRun) -> subprocess.Popen[str]:
    """A run that asks the scripted model."""
    items = str(REPOSITORY / "examples" / "items.jsonl")
    options = ("--data-path", items, "--env-mode", "math", "--metric", "final_number", "--run-id", "run")
    return embedded.command(*options, "--output-dir", str(embedded.results))


@pytest.mark.slow
def test_the_scripted_model_that_dies_stops_the_run(embedded: EmbeddedRun, scripted: subprocess.Popen[str]) -> None:
    wait_for(worker_starts, embedded, scripted)
    service(embedded, "models.scripted").kill()
    output, _ = scripted.communicate(timeout=60)

    assert scripted.returncode == 1, output
    assert "error: the scripted model ended by itself (exit code -9)" in output
    embedded.check_nothing_left(seconds=30)


@pytest.mark.slow
def test_a_frozen_model_does_not_outlive_its_run(embedded: EmbeddedRun, scripted: subprocess.Popen[str]) -> None:
    wait_for(worker_starts, embedded, scripted)
    service(embedded, "models.scripted").suspend()
    scripted.kill()
    scripted.communicate(timeout=60)
    embedded.check_nothing_left(seconds=30)
