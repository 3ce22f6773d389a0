"""A real local desktop behind a gate for each file, and episodes on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmark.items import Item
from rollout_tasks.config import parse_config
from rollout_tasks.environments.base import EnvironmentContext, Observation, ToolCall, ToolResult
from rollout_tasks.environments.osworld.environment import OSWorldEnvironment
from rollout_tasks.settings import settings
from tests.desktops import in_guest, traces
from vm_pool.gate import Gate, Gates
from vm_pool.gate_login import token_of
from vm_pool.providers.base import connect, purposes
from vm_pool.providers.guest_server import PORTS
from vm_pool.providers.local import LocalProvider
from vm_pool.states import Endpoint

SCREEN = (1280, 720)
KEY = b"of the desktop's gate"
ANYTHING = {"func": "infeasible"}


@dataclass
class Desk:
    """One desktop, as a lease would show it."""

    provider: LocalProvider
    vm_id: str
    gates: Gates
    gate: Gate | None = None

    @property
    def endpoint(self) -> Endpoint:
        assert self.gate is not None
        return replace(self.gate.endpoint, token=token_of(KEY, self.gate.endpoint.gate))

    def check(self) -> None:
        pass

    def open(self) -> None:
        endpoint = Endpoint("", PORTS)
        self.gate = self.gates.open(
            purposes(self.provider, endpoint), lambda purpose: connect(self.provider, self.vm_id, purpose, endpoint)
        )

    def revert(self) -> None:
        """As a host does between two holders."""
        if self.gate is not None:
            self.gate.close()
        self.provider.reset(self.vm_id)
        self.open()

    def run(self, command: str) -> str:
        """A shell command in the guest."""
        return in_guest(self.provider, self.vm_id, command)

    @property
    def processes(self) -> list[psutil.Process]:
        """The guest's processes as the machine sees them."""
        inside = [pid for pid in psutil.pids() if _is_in(pid, self.vm_id)]
        found = []
        for pid in inside:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found


def _is_in(pid: int, vm_id: str) -> bool:
    try:
        return vm_id in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


@pytest.fixture(scope="module")
def running_desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    """Of the profile that the module names as PROFILE, else core."""
    vm_id = f"test-osworld-{os.getpid()}-0"
    profile = getattr(request.module, "PROFILE", "core")
    options = {"screen_width": SCREEN[0], "screen_height": SCREEN[1], "profile": profile}
    desk = Desk(LocalProvider(options), vm_id, Gates(key=KEY))
    try:
        desk.provider.boot(vm_id)
        desk.open()
        yield desk
    finally:
        if desk.gate is not None:
            desk.gate.close()
        desk.gates.close()
        desk.provider.stop(vm_id)
    assert traces(vm_id) == []


@pytest.fixture
def desk(running_desk: Desk) -> Desk:
    """The file's desktop, as the test before left it."""
    return running_desk


@pytest.fixture
def clean(running_desk: Desk) -> None:
    """Has the file's desktop reverted before the test."""
    running_desk.revert()


@dataclass
class Play:
    """One episode on a desktop."""

    environment: OSWorldEnvironment
    folder: Path
    first: Observation | None = None
    calls: int = 0
    results: list[ToolResult] = field(default_factory=list)

    def do(self, name: str, **arguments: Any) -> ToolResult:
        self.calls += 1
        result = self.environment.execute(ToolCall(str(self.calls), name, arguments))
        self.results.append(result)
        return result

    def act(self, name: str, **arguments: Any) -> ToolResult:
        result = self.do(name, **arguments)
        assert result.status == "success", result.response
        return result


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are trusted: their code runs in this process, where tests can shorten its patience."""
    monkeypatch.setenv("ROLLOUT_TRUST_TASKS", "1")
    settings.cache_clear()


@pytest.fixture
def play(desk: Desk, tmp_path: Path) -> Iterator[Callable[..., Play]]:
    """Begins an episode: ``play(config=[...], evaluator={...}, action_space=..., ...)``."""
    with ExitStack() as opened:

        def begin(
            config: list[dict[str, Any]] | None = None,
            evaluator: dict[str, Any] | None = None,
            *,
            reset: bool = True,
            env_config: dict[str, Any] | None = None,
            **options: Any,
        ) -> Play:
            desktop = {
                "screen_width": SCREEN[0],
                "screen_height": SCREEN[1],
                "sleep_after_execution": 0.1,
                "observation_type": "screenshot",
                "enable_recording": False,
            }
            run = parse_config({"desktop": desktop | options})
            folder = tmp_path / "attempt"
            environment = OSWorldEnvironment(EnvironmentContext(run, folder, desk))
            opened.callback(environment.close)
            item = Item(
                "task",
                "Do it",
                metadata={"config": config or [], "evaluator": evaluator or ANYTHING},
                env_config=env_config or {},
            )
            playing = Play(environment, folder)
            if reset:
                playing.first = environment.reset(item)
            return playing

        yield begin
