"""Rollouts on real desktops while workers, hosts and guests die, freeze or wake up too late.

Every action of a rollout writes the rollout's name into a file of its desktop, and the task's evaluator scores 1 only if the file
has that name alone, as often as there were actions: a single action of an earlier holder would show.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollout_tasks.models.scripted.process import ScriptedModelProcess
from tests.chaos import guests
from tests.checks import check_broker, check_pool, check_run
from tests.cluster import LEASE_TTL, Cluster
from tests.desktops import needs_local_desktops, traces

pytestmark = [needs_local_desktops, pytest.mark.slow, pytest.mark.timeout(400)]

HOST = f"desktop-rollouts-{os.getpid()}"
ACTIONS = 5
FILE = "/home/user/actions"
SETUP, STEP, EVALUATION = "2.0101", "0.5202", "2.0303"
"""Seconds of sleeping in each phase; as an argument of `sleep`, the phase's mark."""


def _item(number: int) -> dict[str, Any]:
    name = f"item-{number}"
    act = {
        "name": "desktop_execute_python_script",
        "arguments": {
            "script": f"import subprocess; open({FILE!r}, 'a').write('{name}\\n'); subprocess.run(['sleep', '{STEP}'])"
        },
    }
    return {
        "id": name,
        "question": "Leave your name.",
        "config": [{"type": "execute", "parameters": {"command": ["sleep", SETUP]}}],
        "evaluator": {
            "func": "exact_match",
            "result": {
                "type": "vm_command_line",
                "command": f"sleep {EVALUATION}; sort {FILE} | uniq -c | tr -s ' '",
                "shell": True,
            },
            "expected": {"type": "rule", "rules": {"expected": f" {ACTIONS} {name}\n"}},
        },
        "script": [
            *({"tool_calls": [act]} for _ in range(ACTIONS)),
            {"tool_calls": [{"name": "desktop_control", "arguments": {"action": "done"}}]},
        ],
    }


def _sleeping(seconds: str) -> guests.Guest:
    return guests.find(lambda command: command[-2:] == ["sleep", seconds], 180)


def _holder_of(cluster: Cluster, mark: str) -> psutil.Process:
    """The worker's child that runs a rollout in this phase; any will do, there is one VM for each."""
    _sleeping(mark)
    return next(child for child in cluster.children() if child.is_running())


def kill_child(cluster: Cluster) -> None:
    _holder_of(cluster, STEP).kill()


def kill_worker(cluster: Cluster) -> None:
    _sleeping(STEP)
    cluster.kill_main("worker")
    cluster.restart("worker")


def kill_vm_host(cluster: Cluster) -> None:
    _sleeping(STEP)
    cluster.kill_main(HOST)
    cluster.restart(HOST)


def pause_children(cluster: Cluster) -> None:
    """All of them, in the middle of a step: on waking up each still has its desktop's address and goes on."""
    _sleeping(STEP)
    children = cluster.children()
    for child in children:
        child.send_signal(signal.SIGSTOP)
    time.sleep(4 * LEASE_TTL)
    for child in children:
        child.send_signal(signal.SIGCONT)


def kill_server(_cluster: Cluster) -> None:
    guests.kill_server(_sleeping(STEP))


def freeze_in_setup(_cluster: Cluster) -> None:
    guests.freeze(_sleeping(SETUP))


def freeze_in_step(_cluster: Cluster) -> None:
    guests.freeze(_sleeping(STEP))


def freeze_in_evaluation(_cluster: Cluster) -> None:
    guests.freeze(_sleeping(EVALUATION))


DAMAGES = [
    freeze_in_step,
    pause_children,
    kill_child,
    kill_worker,
    kill_vm_host,
    kill_server,
    freeze_in_setup,
    freeze_in_evaluation,
]


@pytest.fixture(name="served")
def _served(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Cluster, str, list[dict[str, Any]]]]:
    items = [_item(number) for number in range(6)]
    cluster.write_items(items)
    cluster.start_vm_host(HOST, num_vms=2, provider="local", options={"screen_width": 1280, "screen_height": 720})
    with ScriptedModelProcess(cluster.items_file) as model:
        cluster.start_worker(concurrency=2, queues="rollout.osworld,finalize")
        yield cluster, model.url, items


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_no_action_reaches_the_next_holder_and_the_run_finishes(
    served: tuple[Cluster, str, list[dict[str, Any]]], damage: Callable[[Cluster], None]
) -> None:
    cluster, url, items = served
    run = cluster.submit(
        {
            "env_mode": "osworld",
            "max_attempts": 4,
            "limits": {"max_seconds": 90},
            "model": {"name": "scripted", "base_url": url},
            "vm": {"provider_name": "local"},
            "desktop": {
                "action_space": "pyautogui",
                "observation_type": "screenshot",
                "screen_width": 1280,
                "screen_height": 720,
                "sleep_after_execution": 0,
                "enable_recording": False,
            },
        },
        items,
    )

    damage(cluster)

    run.wait(seconds=240)
    assert check_run(run, rollouts=len(items)) == {"completed": len(items)}
    attempts = [verdict.attempt for verdict in cluster.store.verdicts(run.run_id)]
    assert max(attempts) > 1, "nothing had to be attempted again: the damage hit nobody"
    check_pool(cluster)
    check_broker(cluster)
    cluster.stop("worker")
    cluster.stop(HOST)
    assert traces(HOST) == []
