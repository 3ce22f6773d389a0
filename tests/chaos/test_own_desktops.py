"""Rollouts that each boot a desktop of their own, several at a time: whatever ends one, its desktop goes, too."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollout_tasks.models.scripted.process import ScriptedModelProcess
from tests.chaos import guests
from tests.checks import check_broker, check_run
from tests.cluster import Cluster
from tests.desktops import needs_local_desktops, traces
from vm_pool.providers.local.folders import STATE_FOLDER

pytestmark = [needs_local_desktops, pytest.mark.timeout(400)]

STEP = f"3.0{os.getpid()}"
"""Seconds of sleeping in each step; as an argument of `sleep`, this test's mark."""
FILE = "/home/user/names"


def _item(number: int) -> dict[str, Any]:
    name = f"item-{number}"
    script = f"import subprocess; open({FILE!r}, 'a').write('{name}\\n'); subprocess.run(['sleep', '{STEP}'])"
    act = {"name": "desktop_execute_python_script", "arguments": {"script": script}}
    return {
        "id": name,
        "question": "Leave your name.",
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": f"cat {FILE}", "shell": True},
            "expected": {"type": "rule", "rules": {"expected": f"{name}\n"}},
        },
        "script": [
            {"tool_calls": [act]},
            {"tool_calls": [{"name": "desktop_control", "arguments": {"action": "done"}}]},
        ],
    }


def _desktops_of(process: psutil.Process) -> set[str]:
    """The ids of the desktops that a worker's child holds."""
    ids: set[str] = set()
    with contextlib.suppress(psutil.Error):
        for child in process.children():
            for word in child.cmdline():
                if word.startswith(f"{STATE_FOLDER}/"):
                    ids.add(Path(word).relative_to(STATE_FOLDER).parts[0])
    return ids


@pytest.mark.slow
def test_each_rollout_has_a_desktop_of_its_own_and_a_killed_child_leaves_none(cluster: Cluster) -> None:
    items = [_item(number) for number in range(3)]
    cluster.write_items(items)
    seen: set[str] = set()
    most_at_once = 0

    def look(_progress: object) -> None:
        nonlocal most_at_once
        now = set().union(*map(_desktops_of, cluster.children()))
        seen.update(now)
        most_at_once = max(most_at_once, len(now))

    with ScriptedModelProcess(cluster.items_file) as model:
        cluster.start_worker(concurrency=2, queues="rollout.osworld,finalize")
        run = cluster.submit(
            {
                "env_mode": "osworld",
                "max_attempts": 3,
                "model": {"name": "scripted", "base_url": model.url},
                "vm": {"provider_name": "local", "use_pool": False},
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
        guests.find(lambda command: command[-2:] == ["sleep", STEP], 180)
        look(None)
        killed = next(child for child in cluster.children() if _desktops_of(child))
        lost = _desktops_of(killed)
        killed.kill()
        deadline = time.monotonic() + 60
        while any(traces(vm_id) for vm_id in lost):
            assert time.monotonic() < deadline, [traces(vm_id) for vm_id in lost]
            time.sleep(0.1)

        run.wait(seconds=240, meanwhile=look)
        assert check_run(run, rollouts=len(items)) == {"completed": len(items)}
        check_broker(cluster)
        cluster.stop("worker")

    verdicts = list(cluster.store.verdicts(run.run_id))
    assert [verdict.score for verdict in verdicts] == [1.0] * len(items)
    used = {verdict.lease.vm_id for verdict in verdicts if verdict.lease is not None}
    assert len(used) == len(items)
    assert most_at_once == 2
    assert [trace for vm_id in seen | used for trace in traces(vm_id)] == []
