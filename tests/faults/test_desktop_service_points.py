"""One fault at each point of a lease's life at the desktop service: messages, files, spawning, requests to Redis, and clients.

The rows come from lives without a fault. What must hold after each is in `desktop_service.plays`.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.desktop_service.ground import Ground, ground_in
from tests.faults.desktop_service.lives import LIVES
from tests.faults.desktop_service.plays import Fault, play, recorded
from tests.faults.desktop_service.vanishing import CALLS, CUTS, HALF_CLOSED, RESET, vanished
from tests.integration.service.desktop_service import OPERATOR
from tests.virtual_machines import wait_until
from vm_pool.providers.remote.options import TOKEN_VARIABLE

ONLY = os.environ.get("DESKTOP_SERVICE_POINT", "")
"""A regular expression: the rows that are wanted; all by default."""
LONGER_THAN_A_SOCKET_TAKES = 500_000 * "x"
SAMPLE = (
    Fault("evaluated", "spawner", "before fork", 1, "EAGAIN", "spawner"),
    Fault("evaluated", "service", "replace .lease.json.N-N.tmp", 1, "SIGKILL", "service"),
)


@pytest.fixture(name="ground", scope="module")
def _ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("desktops")
    with pytest.MonkeyPatch.context() as patch, ground_in(folder) as ground:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv(TOKEN_VARIABLE, OPERATOR)
        yield ground


def test_some_points(ground: Ground) -> None:
    assert {fault.id: problems for fault in SAMPLE if (problems := play(ground, fault))} == {}


def test_a_stopped_process_that_reads_nothing_keeps_nobody_else_waiting(ground: Ground) -> None:
    play = ground.arm(role="session", point="after fork", number=1, what="SIGSTOP", whom="session")
    with ground.service.client() as boss, ThreadPoolExecutor(1) as threads:
        task = {"id": "long", "question": LONGER_THAN_A_SOCKET_TAKES, "env_config": {"steps": 1}}
        waits = threads.submit(boss.post, "/leases", json={"task": task, "wait_seconds": 20})
        try:
            wait_until(lambda: ground.met_in(play))
            ground.arm()
            with ground.service.client() as other:
                lease = other.post("/leases", json={"item": "two", "key": "a"}, timeout=20).json()
                assert other.delete(f"/leases/{lease['lease_id']}").status_code == 200
        finally:
            ground.wake()
        begun = waits.result(60)
        assert begun.status_code in (201, 202), begun.text
        boss.delete(f"/leases/{begun.json()['lease_id']}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("life", LIVES)
def test_every_point(ground: Ground, life: str) -> None:
    faults = [fault for fault in recorded(ground, life) if re.search(ONLY, fault.id)]
    assert faults
    random.Random(0).shuffle(faults)  # so that a part of them that is stopped early has seen some of each kind
    wrong: dict[str, list[str]] = {}
    for number, fault in enumerate(faults, 1):
        problems = play(ground, fault)
        print(
            f"{number}/{len(faults)} {'wrong' if problems else 'right'}{'' if ground.was_met else ', not met'}: {fault.id}",
            *problems,
            sep="\n    ",
            flush=True,
        )
        if problems:
            wrong[fault.id] = problems
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_clients_that_vanish_at_every_point_of_every_call(ground: Ground) -> None:
    wrong: dict[str, list[str]] = {}
    for call in CALLS:
        for cut in CUTS:
            for manner in (RESET, HALF_CLOSED):
                if problems := vanished(ground, call, cut, manner):
                    wrong[f"{call.name}: {manner} {cut}"] = problems
                    print(f"{call.name}: {manner} {cut}", *problems, sep="\n    ", flush=True)
    said = ground.service.said()
    assert "Traceback" not in said, said[said.index("Traceback") :][:3000]
    assert wrong == {}
