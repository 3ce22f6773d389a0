"""Running a command that is to be refused, and everything that has to be true afterwards."""

from __future__ import annotations

import multiprocessing
import os
import queue
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

import redis

from tests.acceptance.forked_command import become_command
from tests.conftest import REPOSITORY

SECRET = "hunter2"
"""Stands for every password in these tests: nothing may ever print it."""
ROLLOUTS = REPOSITORY / "rollout_tasks" / "cli" / "main.py"
"""The program of the command `rollouts`, as a file."""
_SECONDS = 60
_ON_A_MOUNT = [
    *("unshare", "--mount", "sh", "-c"),
    'mount -t tmpfs -o "$1" tmpfs out; shift; "$@"; code=$?; ls -A out >&2; exit $code',
    "sh",
]
"""Only this command and its children see the mount, which is gone when they are. What is left in it is an output too many."""
CAN_MOUNT = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["celery.canvas", "jsonschema", "kombu.transport.redis", "pydantic_settings", "rich.table", "typer", "yaml"]
)
"""Commands are run by forks of a process that has other people's packages and none of ours: to import them takes longest."""
_READING_EXIT_CODES = threading.Lock()
"""To start a process is to read the exit codes of all that have ended; of two threads that read one, the second gets 255."""
_ABOUT_US = ("REDIS", "OPENAI", "ROLLOUT", "CELERY", "JUDGE")


@dataclass(frozen=True)
class Place:
    """Where one case happens: a folder of its own and a database of its own."""

    folder: Path
    redis_url: str

    @property
    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.redis_url)


@dataclass(frozen=True)
class Case:
    """One thing a user can get wrong."""

    name: str
    arguments: str
    """Of the command; ``{names}`` are filled in with addresses."""
    says: Sequence[str]
    """What the sentence has to name."""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    broker: bool = False
    """Whether the configured broker is the test's Valkey; otherwise there is none."""
    prepare: Callable[[Place], None] | None = None
    command: str = "submit.py"
    exit_code: int = 2
    mount: str = ""
    """Options of a tmpfs that the folder ``out`` is for the command alone, as in ``size=1m``."""


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str
    files_before: Mapping[str, bytes | None]
    files_after: Mapping[str, bytes | None]
    keys_before: Mapping[str, bytes]
    keys_after: Mapping[str, bytes]


class Runner:
    """Runs cases, several at a time, each in a folder and a database of its own."""

    def __init__(self, folder: Path, server_url: str, names: Mapping[str, str], databases: int) -> None:
        self.folder = folder
        self.names = names
        self._server = server_url.rsplit("/", 1)[0]
        self._databases: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(1, databases + 1):
            self._databases.put(number)

    def run(self, case: Case) -> Outcome:
        database = self._databases.get()
        try:
            return self._run(case, f"{self._server}/{database}")
        finally:
            self._databases.put(database)

    def _run(self, case: Case, redis_url: str) -> Outcome:
        place = Place(self.folder / "".join(c if c.isalnum() else "-" for c in case.name), redis_url)
        place.folder.mkdir()
        with place.client as client:
            client.flushdb()
            for name, content in case.files.items():
                path = place.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
            if case.prepare is not None:
                case.prepare(place)
            if case.mount:
                (place.folder / "out").mkdir()
            files, keys = tree(place.folder), stored(client)
            environment = {"REDIS_URL": redis_url} if case.broker else {}
            environment |= {name: value.format_map(self.names) for name, value in case.environment.items()}
            arguments = shlex.split(case.arguments.format_map(self.names))
            done = run_command(case.command, arguments, place.folder, environment, mount=case.mount)
            return Outcome(done.returncode, done.stdout, done.stderr, files, tree(place.folder), keys, stored(client))


def run_command(
    command: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], *, mount: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs one of scripts/, or ``rollouts``, in a folder, with nothing configured but what is given."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(_ABOUT_US)}
    script = str(ROLLOUTS if command == "rollouts" else REPOSITORY / "scripts" / command)
    if not mount:
        return _run_in_fork([script, *arguments], folder, {**plain, **environment})
    return subprocess.run(
        [*_ON_A_MOUNT, mount, sys.executable, script, *arguments],
        cwd=folder,
        env={**plain, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _run_in_fork(
    words: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as said:
        outputs = [Path(said) / name for name in ("stdout", "stderr")]
        process = _FORKS.Process(target=become_command, args=(words, folder, dict(environment), *map(str, outputs)))
        with _READING_EXIT_CODES:
            process.start()
        if not wait([process.sentinel], _SECONDS):
            process.kill()
            wait([process.sentinel])
            raise subprocess.TimeoutExpired(words, _SECONDS)
        with _READING_EXIT_CODES:
            process.join()
        return subprocess.CompletedProcess(words, process.exitcode, *(output.read_text() for output in outputs))


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its content; folders with None."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def stored(client: redis.Redis) -> dict[str, bytes]:
    """Every key of a database with its value as Redis dumps it."""
    return {key.decode(): client.dump(key) or b"" for key in client.scan_iter(count=1000)}
