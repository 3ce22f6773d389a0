"""The services of an embedded run, where another process takes a port between its choice and its use."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from rollout_tasks.cleanup_process import CleanupProcess
from rollout_tasks.embedded import services as embedded
from rollout_tasks.embedded.services import EmbeddedServices
from rollout_tasks.errors import ServiceEnded, UserError
from tests.conftest import REPOSITORY

free_port = embedded._free_port


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedServices]:
    monkeypatch.chdir(Path(__file__).parents[3])
    opened = EmbeddedServices(tmp_path / "logs")
    yield opened
    opened.stop(at_once=True)


def chosen(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """The next ports that are taken for free ones; after these, real ones."""
    left = list(ports)
    monkeypatch.setattr(embedded, "_free_port", lambda: left.pop(0) if left else free_port())


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/healthcheck", timeout=2)  # noqa: S310
    except OSError:
        return False
    return True


@pytest.fixture
def open_redis(tmp_path: Path) -> Iterator[int]:
    """The port of another program's Redis, which takes whatever password it is given."""
    port = free_port()
    command = [embedded.valkey_binary(), "--port", str(port), "--dir", str(tmp_path), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server, redis.Redis(port=port) as client:
        try:
            deadline = time.monotonic() + 30
            while not embedded._listens(server.pid, port):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            client.config_get("dir")
            yield port
        finally:
            server.kill()


@pytest.mark.parametrize("other", ["taken", "open_redis"])
def test_valkey_takes_another_port(
    stack: EmbeddedServices, other: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = request.getfixturevalue(other)
    chosen(monkeypatch, port)
    stack.start_valkey()
    assert f":{port}/" not in os.environ["REDIS_URL"]
    stack.check()


def test_valkey_does_not_try_for_ever(stack: EmbeddedServices, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, *[taken] * 10)
    with pytest.raises(UserError, match=r"^valkey ended by itself"):
        stack.start_valkey()


@pytest.mark.usefixtures("misleading_folder")
def test_files_in_the_current_folder_replace_no_module_and_no_setting(tmp_path: Path) -> None:
    stack = EmbeddedServices(tmp_path / "logs")
    try:
        stack.start_valkey()
        stack.start_worker(1, None, ["finalize"])
        stack.start_flower()
        deadline = time.monotonic() + 60
        while not (" ready." in (stack.logs / "worker.log").read_text() and answers(stack.flower_url)):
            assert time.monotonic() < deadline
            stack.check()
            assert not stack.flower_lost
            time.sleep(0.1)
    finally:
        stack.stop(at_once=True)


def test_flower_takes_another_port(stack: EmbeddedServices, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.start_valkey()
    chosen(monkeypatch, taken)
    stack.start_flower()
    deadline = time.monotonic() + 60
    while not (str(taken) not in stack.flower_url and answers(stack.flower_url)):
        assert time.monotonic() < deadline
        stack.check()
        time.sleep(0.1)


@pytest.mark.slow
def test_a_run_goes_on_without_flower(stack: EmbeddedServices, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.start_valkey()
    chosen(monkeypatch, *[taken] * 10)
    stack.start_flower()
    deadline = time.monotonic() + 60
    while not stack.flower_lost:
        assert time.monotonic() < deadline
        stack.check()
        time.sleep(0.1)
    assert stack.flower_lost.startswith("flower ended by itself (exit code 1); see ")
    stack.check()


@pytest.mark.parametrize("name", ["with blank", 'with "quotes" and \\', "é日本", "a" * 100])
def test_the_folder_for_temporary_files_may_be_called_anything(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    stack = EmbeddedServices(tmp_path / "logs")
    stack.start_valkey()
    stack.stop(at_once=True)
    assert list((tmp_path / name).iterdir()) == []


@pytest.mark.parametrize("answer", [b"+OK\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$1000000\r\nx"])
def test_nothing_is_said_to_another_program(
    stack: EmbeddedServices, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def talk() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = other.accept()
                    with connection:
                        connection.sendall(answer)
                        heard.append(connection.recv(1000))

        threading.Thread(target=talk, daemon=True).start()
        chosen(monkeypatch, other.getsockname()[1])
        stack.start_valkey()
    assert heard == []


def test_a_run_goes_on_where_flower_cannot_be_started_again(stack: EmbeddedServices) -> None:
    stack.start_valkey()
    stack.start_flower()
    log = stack.logs / "flower.log"
    log.unlink()
    log.mkdir()
    stack._services["flower"].kill()
    stack._services["flower"].wait()
    stack.check()
    assert stack.flower_lost == "flower ended, and cannot be started again: Is a directory"
    stack.check()


def test_a_service_that_the_run_needs_is_named_when_it_ends(stack: EmbeddedServices) -> None:
    stack.start_valkey()
    stack.check()
    stack._services["valkey"].kill()
    stack._services["valkey"].wait()
    with pytest.raises(ServiceEnded, match="valkey ended by itself"):
        stack.check()


@pytest.mark.slow
def test_a_cleanup_process_that_was_killed_is_replaced_and_told_everything(stack: EmbeddedServices) -> None:
    stack.start_valkey()
    stack._cleanup._process.kill()
    stack._cleanup._process.wait()
    stack.start_flower()
    leaders = [service.pid for service in stack._services.values()]
    stack._cleanup.dismiss(30)
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in leaders)
    assert not stack.folder.exists()


@pytest.mark.parametrize("name", [b"two\nlines", b"no \xff UTF-8"])
def test_the_cleanup_process_removes_a_folder_whatever_it_is_called(name: bytes, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(name)
    cleanup = CleanupProcess()
    cleanup.remove_afterwards(folder)
    folder.mkdir()
    cleanup.dismiss(30)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_cleanup_process_ends_what_it_was_not_told_of(stack: EmbeddedServices) -> None:
    stack.start_valkey()
    variables = {**os.environ, "TMPDIR": str(stack.folder)}
    with subprocess.Popen(["/bin/sleep", "100"], env=variables, start_new_session=True) as untold:
        stack._cleanup.dismiss(30)
        assert untold.wait(5) == -15
    assert not stack.folder.exists()


def test_a_service_whose_start_is_interrupted_is_stopped_with_the_others_though_the_program_has_threads(
    stack: EmbeddedServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, interrupted = threading.Event(), threading.Event()

    def interrupt() -> None:
        started.wait()
        signal.raise_signal(signal.SIGINT)
        interrupted.set()

    class Interrupted(subprocess.Popen[bytes]):
        """A process that has begun, of which its caller knows nothing yet."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)
            started.set()
            interrupted.wait()

    begun: list[subprocess.Popen[bytes]] = []
    threading.Thread(target=interrupt).start()
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        stack.start_valkey()
    stack.stop(at_once=True)

    (service,) = begun
    try:
        assert service.wait(5) is not None
    finally:
        service.kill()


def test_flower_reads_no_settings_of_anothers(stack: EmbeddedServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWER_PERSISTENT", "True")
    stack.start_valkey()
    stack.start_flower()
    environment = psutil.Process(stack._services["flower"].pid).environ()
    assert "FLOWER_PERSISTENT" not in environment
    assert environment["FLOWER_READ_ONLY"] == "True"


KILLED_AT_ITS_START = """
import os, signal, subprocess, sys
from pathlib import Path
from rollout_tasks.embedded.services import EmbeddedServices
services = EmbeddedServices(Path(sys.argv[1]))
start = subprocess.Popen
def start_and_be_killed(*arguments, **options):
    print(start(*arguments, **options).pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
subprocess.Popen = start_and_be_killed
services.start_valkey()
"""


def test_a_run_that_is_killed_as_it_starts_its_broker_leaves_none_without_a_password(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_AT_ITS_START, str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    broker = int(done.stdout)
    try:
        deadline = time.monotonic() + 20
        while psutil.pid_exists(broker):
            with contextlib.suppress(psutil.Error):
                listening = {one.laddr.ip for one in psutil.Process(broker).net_connections("tcp")}
                assert listening <= {"127.0.0.1"}
            assert time.monotonic() < deadline, "it stays"
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(broker, signal.SIGKILL)


KILLED_WITH_ITS_CLEANUP_PROCESS = """
import os, signal, sys
from pathlib import Path
from rollout_tasks.embedded.services import EmbeddedServices
services = EmbeddedServices(Path(sys.argv[1]))
services._start("flower", ["/bin/sleep", "100"])
print(services.folder, services._services["flower"].pid, flush=True)
services._cleanup._process.kill()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_that_nobody_is_left_to_clean_up_goes_with_the_next_run_unless_a_service_still_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    command = [sys.executable, "-c", KILLED_WITH_ITS_CLEANUP_PROCESS, str(tmp_path)]
    killed = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    folder, service = Path(killed.stdout.split()[0]), psutil.Process(int(killed.stdout.split()[1]))
    try:
        EmbeddedServices(tmp_path).stop(at_once=True)
        assert list((tmp_path / "tmp").iterdir()) == [folder], "its service has it still"
    finally:
        service.kill()

    deadline = time.monotonic() + 30
    while folder.exists():
        assert time.monotonic() < deadline
        EmbeddedServices(tmp_path).stop(at_once=True)
    assert list((tmp_path / "tmp").iterdir()) == []
