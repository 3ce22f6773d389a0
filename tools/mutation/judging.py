"""Plants defects one at a time in a copy of the working tree, and finds out whether the tests there notice."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from rollout_tasks.cleanup_process import CleanupProcess
from tools.mutation.mutant import Mutant

TEST_SECONDS = 60
"""How long one test may take before it counts as stuck."""
LEAST_SECONDS = 60.0
SLOWER = 4.0
"""A group of tests is given up when it takes so many times what it takes without a defect."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_stamps = itertools.count(int(time.time()))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one defect."""

    outcome: Literal["noticed", "survived"]
    by: str
    """The first test that failed, or ``timeout``; empty when none did."""
    seconds: float


class BaselineFailed(Exception):
    """The tests fail although nothing is planted."""


@contextmanager
def copy_of(root: Path) -> Iterator[Copy]:
    """A copy of what git tracks or could track in the working tree, as it is now; removed in the end."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder, ExitStack() as opened:
        cleanup = CleanupProcess()
        opened.callback(cleanup.dismiss, 10)
        cleanup.remove_afterwards(Path(folder))
        copy = Path(folder) / "tree"
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
        yield Copy(copy, root, cleanup)


@dataclass(slots=True)
class Copy:
    """A tree in which one defect at a time is planted."""

    folder: Path
    original: Path
    cleanup: CleanupProcess
    """Ends the tests when whoever judges them is killed."""

    def measure(self, groups: Sequence[Sequence[str]]) -> list[float]:
        """How long each group of tests may take with a defect, in seconds.

        Raises:
            BaselineFailed: A test fails without one.
        """
        limits = []
        for group in groups:
            began = time.monotonic()
            failed, output = self._run(group, 3600.0)
            if failed:
                raise BaselineFailed(f"without a defect {failed} fails:\n{output[-2000:]}")
            limits.append(max(LEAST_SECONDS, SLOWER * (time.monotonic() - began)))
        return limits

    def judge(self, mutant: Mutant, groups: Sequence[Sequence[str]], limits: Sequence[float]) -> Judgement:
        """Plants the defect, runs the tests group by group up to the first failure, and takes it out again."""
        began = time.monotonic()
        with self._planted(mutant):
            for group, limit in zip(groups, limits, strict=True):
                failed, _output = self._run([*self._named_after(mutant, group), *group], limit)
                if failed:
                    return Judgement("noticed", failed, time.monotonic() - began)
        return Judgement("survived", "", time.monotonic() - began)

    def _named_after(self, mutant: Mutant, group: Sequence[str]) -> list[str]:
        """Test files of a group that are named after the file with the defect: begun with, they notice soonest."""
        stem = Path(mutant.file).stem
        found = {path for name in group for path in (self.folder / name).rglob(f"test_*{stem}*.py")}
        return [str(path.relative_to(self.folder)) for path in sorted(found)]

    @contextmanager
    def _planted(self, mutant: Mutant) -> Iterator[None]:
        file = self.folder / mutant.file
        sound = file.read_text("utf-8")
        try:
            _write(file, mutant.text)
            yield
        finally:
            _write(file, sound)

    def _run(self, group: Sequence[str], limit: float) -> tuple[str, str]:
        """Runs tests up to the first failure; returns its name, empty when there was none, and the output."""
        arguments = ["--exitfirst", "--quiet", "--no-header", "--tb=short", "-rfE", "-p", "no:cacheprovider"]
        arguments += [f"--timeout={TEST_SECONDS}", "--hypothesis-seed=0", "-m", "not slow"]
        shared = self.original.parent / "shared" / "data"
        environment = {"ROLLOUT_TEST_DATA": str(shared), **os.environ, "PYTHONPATH": str(self.folder)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryFile() as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *arguments, *group],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.cleanup.stop_afterwards(process.pid)
            try:
                status: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end_with_children(process)
            written.seek(0)
            output = written.read().decode(errors="replace")
        if status is None:
            return "timeout", output
        if status == 0:
            return "", output
        found = _FAILED.search(output)
        return found.group(1) if found else f"exit status {status}", output


def _write(file: Path, text: str) -> None:
    """Under a time of its own: Python takes compiled files for fresh whose source has the same size and second."""
    file.write_text(text, "utf-8")
    stamp = next(_stamps)
    os.utime(file, (stamp, stamp))


def _end_with_children(process: subprocess.Popen[bytes]) -> None:
    """Ends the tests and whatever they started and left."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
