"""One real desktop for each file of tests, reached as desktop-env reaches it: by address and port."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from desktop_image.cache import guest_cache_folder, remove
from rollout_tasks.environments.osworld import vm_client
from rollout_tasks.environments.osworld.desktop_env_import import desktop_env
from tests.desktops import traces
from vm_pool.gate import Gates
from vm_pool.providers.guest_server import PORTS
from vm_pool.providers.local import LocalProvider

SCREEN = (1280, 720)


@dataclass(frozen=True)
class Desktop:
    """A running desktop."""

    address: str
    ports: dict[str, int]

    def url(self, path: str) -> str:
        return f"http://{self.address}:{self.ports['control']}{path}"

    def shell(self, command: str) -> str:
        """What a shell command prints, run as the guest's user."""
        reply = requests.post(self.url("/execute"), json={"command": command, "shell": True}, timeout=130).json()
        assert reply["status"] == "success", reply
        return str(reply["output"]) + str(reply["error"])

    def launch(self, command: str) -> None:
        requests.post(
            self.url("/setup/launch"), json={"command": command, "shell": True}, timeout=30
        ).raise_for_status()

    def windows(self) -> list[str]:
        return list(requests.get(self.url("/health"), timeout=30).json()["windows"])


@contextmanager
def running(profile: str, name: str, screen: tuple[int, int] = SCREEN) -> Iterator[Desktop]:
    """A freshly started desktop, of which nothing is left afterwards."""
    vm_id = f"test-guest-{os.getpid()}-{name}".replace("_", "-")
    provider = LocalProvider({"screen_width": screen[0], "screen_height": screen[1], "profile": profile})
    gates = Gates()
    try:
        provider.boot(vm_id)
        provider.check(vm_id)
        gate = gates.open(list(PORTS), lambda purpose: provider.connect(vm_id, purpose))
        yield Desktop(gate.endpoint.address, dict(gate.endpoint.ports))
        gate.close()
    finally:
        gates.close()
        provider.stop(vm_id)
    assert traces(vm_id) == []


def remove_image(name: str) -> None:
    """Removes an image of a test's own, and what only it is made of."""
    shutil.rmtree(guest_cache_folder() / "images" / name, ignore_errors=True)
    (guest_cache_folder() / "images" / f"{name}.lock").unlink(missing_ok=True)
    for part in guest_cache_folder().glob(f"*-{name}-*"):
        if part.is_dir():
            remove(part.name)
            shutil.rmtree(part, ignore_errors=True)
    for file in guest_cache_folder().glob(f"*-{name}-*"):
        file.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def desktop(request: pytest.FixtureRequest) -> Iterator[Desktop]:
    """Freshly started; of the profile that the module names as PROFILE, else core."""
    with running(getattr(request.module, "PROFILE", "core"), request.module.__name__.rpartition(".")[2]) as desktop:
        yield desktop


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """The unmodified desktop-env: an attempt in this process may have given its modules another `requests` and `time`."""
    desktop_env()
    for name, module in list(sys.modules.items()):
        if name.startswith("desktop_env.") and getattr(module, "requests", None) is vm_client.REQUESTS:
            module.requests = requests  # type: ignore[attr-defined]
        if name.startswith("desktop_env.") and getattr(module, "time", None) is vm_client._TIME:
            module.time = time  # type: ignore[attr-defined]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def control(desktop: Desktop) -> Any:
    """What acts and observes."""
    from desktop_env.controllers.python import PythonController

    return PythonController(desktop.address, desktop.ports["control"])


@pytest.fixture
def setup(desktop: Desktop, cache: Path) -> Any:
    """What plays setup steps."""
    from desktop_env.controllers.setup import SetupController

    return SetupController(
        desktop.address,
        desktop.ports["control"],
        cache_dir=str(cache),
        client_password="password",
        screen_width=SCREEN[0],
        screen_height=SCREEN[1],
    )
