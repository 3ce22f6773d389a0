"""Which results the Python API gives of a run, on a real Valkey that no worker serves: one for each rollout, once it is over."""

# ruff: noqa: F811 (the fixture `shell` is imported)

from __future__ import annotations

import asyncio
import io
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import rollout_tasks.api
from benchmark.benchmark import Benchmark
from benchmark.results import RolloutResult
from rollout_tasks.api import Run, find, submit
from rollout_tasks.cli import run_actions
from rollout_tasks.command_call import _listen, call_command
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.parallel_rollout import _worker_results
from rollout_tasks.runs.finalize import finalize
from tests.conftest import REPOSITORY
from tests.unit.runs.test_run_commands import Shell, shell  # noqa: F401 (a fixture)

RUN = "night-1"
EVERY = {("a", 0): "completed", ("b", 0): "cancelled", ("a", 1): "cancelled", ("b", 1): "cancelled"}


@pytest.fixture
def run(shell: Shell) -> Run:
    """Two rollouts of each of two items, of which one has ended."""
    shell.call(run_actions.submit, shell.config({"id": "a"}, {"id": "b"}, rollouts_per_item=2))
    shell.finish("a#0")
    return Run(RUN, shell.run.path)


@pytest.fixture
def cancelled(shell: Shell, run: Run) -> Run:
    """It was cancelled then, and is over."""
    assert shell.store.cancel(RUN).left == 0
    assert finalize(RUN) == "cancelled"
    return run


def test_a_run_is_cancelled(shell: Shell, run: Run) -> None:
    run.cancel()
    progress = shell.store.progress(RUN)

    assert progress is not None
    assert (progress.state, progress.failures) == ("cancelling", {"cancelled": 3})


@pytest.mark.slow
def test_a_run_is_asked_for_where_it_was_sent(shell: Shell, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(str(shell.run.path)).progress().state == "running"

    known = find(str(shell.run.path))
    monkeypatch.setenv("ROLLOUT_REDIS_URL", f"{os.environ['ROLLOUT_REDIS_URL'].rpartition('/')[0]}/1")
    assert find(str(shell.run.path)).progress().state == "unknown", "that Redis does not know it"
    sent = submit(shell.config({"id": "a"}, run_id="night-2"))

    assert sent.progress().state == "running"
    monkeypatch.delenv("ROLLOUT_REDIS_URL")
    assert (known.progress().state, sent.progress().state) == ("running", "running")
    sent.cancel()
    assert sent.progress().state == "cancelling"


@pytest.mark.usefixtures("misleading_folder")
def test_files_in_the_current_folder_replace_no_module_of_the_command_line() -> None:
    assert call_command("list") == []


def test_a_cancelled_run_has_a_result_for_each_rollout(cancelled: Run) -> None:
    result = cancelled.wait(10)
    given = [list(cancelled.results()), list(result.results()), list(cancelled.result().results())]

    for found in given:
        assert {(one.item_id, one.index): one.status for one in found} == EVERY
        assert len(found) == result.summary["total_rollouts"] == 4
        assert Counter(one.failure_class for one in found) == {None: 1, "cancelled": 3}
    assert {one.attempts for one in given[0] if one.status == "cancelled"} == {0}


def test_results_that_come_end_with_those_of_cancelled_rollouts(cancelled: Run) -> None:
    async def taken() -> list[RolloutResult]:
        return [one async for one in cancelled]

    found = asyncio.run(taken())

    assert [(one.item_id, one.index) for one in found] == list(EVERY)
    assert {(one.item_id, one.index): one.status for one in found} == EVERY


def test_a_program_of_the_multi_process_framework_gets_each_rollout(cancelled: Run) -> None:
    found = list(_worker_results(cancelled.wait(10)))

    assert [(one["task_id"], one["success"]) for one in found] == [
        ("a", True),
        ("b", False),
        ("a", False),
        ("b", False),
    ]
    assert [bool(one["error"]) for one in found] == [False, True, True, True]
    assert all(one["messages"] == [] for one in found)


def test_of_a_run_that_goes_on_there_are_only_verdicts(run: Run) -> None:
    assert [one.item_id for one in run.results()] == ["a"]
    assert [one.item_id for one in run.result().results()] == ["a"]


def test_of_an_incomplete_run_that_redis_does_not_know_there_are_only_verdicts(shell: Shell, cancelled: Run) -> None:
    shell.client.flushdb()

    assert [one.item_id for one in cancelled.results()] == ["a"]
    assert [one.item_id for one in cancelled.result().results()] == ["a"]


def test_a_benchmark_from_standard_input_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"question": "One?"}')))
    benchmark = Benchmark("-")

    for call in (rollout_tasks.api.run, submit):
        with pytest.raises(UserError, match=r"^the benchmark has read - to its end, .*: save the data in a file$"):
            call(RunConfig(), benchmark)


class TimeIsUp(BaseException):
    """What interrupts a caller."""


@pytest.fixture
def ctrl_c_ignored() -> Iterator[None]:
    """As a shell has it for what a script starts in its background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_ignored")
def test_a_submission_is_taken_back_where_ctrl_c_is_ignored(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object) -> None:
        raise TimeIsUp

    def answer_nothing() -> None:
        with silent.accept()[0] as asked:
            os.kill(os.getpid(), signal.SIGUSR1)
            while asked.recv(1024):
                pass

    before = signal.signal(signal.SIGUSR1, end)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("ROLLOUT_REDIS_URL", f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        server = threading.Thread(target=answer_nothing)
        server.start()
        try:
            with pytest.raises(TimeIsUp) as caught:
                submit(shell.config({"id": "a"}))
        finally:
            signal.signal(signal.SIGUSR1, before)
        server.join()

    assert caught.value.__notes__ == ["Stopped before anything was begun."]


@pytest.mark.usefixtures("ctrl_c_ignored")
def test_it_does_so_while_it_is_still_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(subprocess.Popen[str]):
        """A process of whose beginning the caller sees nothing."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            monkeypatch.setattr(self.stdout, "read", self.never)

        def never(self) -> str:
            raise TimeIsUp

    started: list[Interrupted] = []
    monkeypatch.setattr(subprocess, "Popen", Interrupted)

    with pytest.raises(TimeIsUp):
        call_command("list")

    assert [process.returncode for process in started] == [-signal.SIGINT]


@pytest.fixture
def endless_file(tmp_path: Path) -> Path:
    """One at which a command waits for as long as nobody writes it."""
    os.mkfifo(tmp_path / "endless")
    return tmp_path / "endless"


KILLED = """
import sys
from rollout_tasks.command_call import call_command
from rollout_tasks.config import RunConfig
call_command("submit", "--system-prompt-file", sys.argv[1], config=RunConfig())
"""


def test_a_command_ends_with_its_caller_even_if_that_is_killed(
    endless_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    command = [sys.executable, "-c", KILLED, str(endless_file)]
    # The file can be opened once the command has opened it.
    with subprocess.Popen(command, cwd=REPOSITORY) as caller, endless_file.open("wb") as written:
        caller.kill()
        readers = select.poll()
        readers.register(written, select.POLLERR)
        assert readers.poll(30_000), "the command still waits"

    call_command("list")
    assert list((tmp_path / "tmp").iterdir()) == [], "the next command removes what is left of another"


class Noted(subprocess.Popen[str]):
    """A process that a test can look at."""

    started: ClassVar[list[Noted]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.started.append(self)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Noted]]:
    """The processes that were started; none stays after the test."""
    Noted.started = []
    yield Noted.started
    for process in Noted.started:
        process.kill()


def test_a_command_to_which_no_thread_can_listen_is_stopped(
    endless_file: Path, started: list[Noted], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match=r"^can't start new thread$"):
        call_command("submit", "--config", str(endless_file))

    assert [process.returncode for process in started] == [-signal.SIGINT]


def test_a_command_whose_start_is_interrupted_ends_though_its_caller_has_threads(
    endless_file: Path, started: list[Noted], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, interrupted = threading.Event(), threading.Event()

    def interrupt() -> None:
        begun.wait()
        signal.raise_signal(signal.SIGINT)
        interrupted.set()

    class Interrupted(Noted):
        """One that has begun, of which its caller knows nothing yet."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.set()
            interrupted.wait()

    threading.Thread(target=interrupt).start()
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        call_command("submit", "--config", str(endless_file))

    assert [process.wait(30) for process in started] == [-signal.SIGINT]


class _Gone:
    """A terminal that was closed."""

    def write(self, _text: str) -> int:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stream", [_Gone(), None])
def test_progress_is_read_to_its_end_though_nobody_can_be_shown_it(
    stream: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the run would wait for room in the pipe for ever."""
    monkeypatch.setattr("sys.stderr", stream)
    last: deque[str] = deque(maxlen=1)

    _listen(io.StringIO("one\n" * 100_000 + "the last\n"), last, True)

    assert list(last) == ["the last"]
