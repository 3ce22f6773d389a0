"""The service loop while each part of the machinery is killed in turn: no item is lost, and none is done twice."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.scored_rollouts import reported
from tests.chaos.test_monkey import kill_child, kill_valkey, kill_vm_host, kill_worker
from tests.checks import check_events
from tests.cluster import Cluster
from vm_pool.pool import VMPool

ROLLOUTS = 3
SECONDS = float(os.environ.get("ROLLOUT_CHAOS_SECONDS", "60"))
"""How long parts are killed."""
PAUSE = float(os.environ.get("ROLLOUT_CHAOS_PAUSE", "5"))
"""Seconds between two kills."""


def start_loop(cluster: Cluster, *more: str) -> None:
    command = [sys.executable, "-m", "rollout_tasks.cli.main", "serve", "--name", "night", "--json"]
    command += ["--data-path", str(cluster.items_file), "--env-mode", "simulated", "--output-dir", str(cluster.results)]
    cluster.start("loop", [*command, "-n", str(ROLLOUTS), "--in-flight", "12", *more])


def kill_loop(cluster: Cluster, _chance: random.Random) -> None:
    cluster.kill_main("loop")
    cluster.restart("loop")


def items(number: int) -> list[dict[str, Any]]:
    config = {"seconds": [0.2, 1.0], "success_rate": 0.5}
    return [{"id": f"item-{index}", "question": "?", "env_config": config} for index in range(number)]


def state(cluster: Cluster) -> dict[str, Any]:
    """What the loop says that it is doing; the file is whole at any moment."""
    values: dict[str, Any] = json.loads((cluster.results / "night.service" / "state.json").read_text())
    return values


def wait_for(cluster: Cluster, what: str, holds: Callable[[dict[str, Any]], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ((cluster.results / "night.service" / "state.json").exists() and holds(state(cluster))):
        assert time.monotonic() < deadline, (
            f"not {what} after {seconds} s: {(cluster.folder / 'loop.log').read_text()[-3000:]}"
        )
        time.sleep(0.2)


def journal(cluster: Cluster) -> list[dict[str, Any]]:
    text = (cluster.results / "night.service" / "journal.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def check_groups(cluster: Cluster) -> Counter[str]:
    """Each group that was begun has ended once, with all its rollouts, in a run of its own; returns the offers' keys."""
    lines = journal(cluster)
    withdrawn = [line["number"] for line in lines if line["kind"] == "withdrawn"]
    begun = {line["number"]: line for line in lines if line["kind"] == "begun"}  # a withdrawn number is used again
    ended = [line for line in lines if line["kind"] == "ended"]
    assert Counter(line["number"] for line in ended) == Counter(dict.fromkeys(begun, 1)), withdrawn
    for line in ended:
        assert len(line["rewards"]) == ROLLOUTS, line
        run = RunFolder(cluster.results / begun[line["number"]]["run_id"])
        ((item_id, rows),) = reported(run.evaluation)
        assert item_id == begun[line["number"]]["item_id"]
        assert [row["score"] for row in rows] == line["rewards"]
        attempts = [path for path in Path(run.path).rglob("result.json") if path.parent.name.isdigit()]
        assert len(attempts) == ROLLOUTS, "one result for each rollout"
    runs = {path.name for path in cluster.results.iterdir() if not path.name.endswith(".service")}
    assert runs == {line["run_id"] for line in begun.values()}
    return Counter(line["key"] for line in begun.values())


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 400)
def test_no_item_is_lost_or_done_twice_whatever_is_killed(cluster: Cluster) -> None:
    cluster.write_items(items(20))
    cluster.start_worker()
    cluster.start_vm_host()
    start_loop(cluster)
    wait_for(cluster, "busy", lambda now: now["groups_ended"] > 0, 60)
    chance, until = random.Random(5), time.monotonic() + SECONDS
    damages = [kill_loop, kill_child, kill_worker, kill_valkey, kill_vm_host]
    done = 0
    while time.monotonic() < until:
        damages[done % len(damages)](cluster, chance)
        done += 1
        time.sleep(PAUSE)
        assert time.time() - state(cluster)["at"] < 60, "it says at any moment what it waits for"
    ended = state(cluster)["groups_ended"]
    wait_for(cluster, "going on", lambda now: now["groups_ended"] >= ended + 5, 120)

    cluster.processes["loop"].send_signal(signal.SIGTERM)
    assert cluster.processes["loop"].wait(120) == 0

    keys = check_groups(cluster)
    assert set(keys.values()) == {1}, "no offer was taken twice"
    epochs = Counter(key.partition(":")[0] for key in keys)
    whole = [count for epoch, count in epochs.items() if int(epoch) < max(map(int, epochs))]
    assert all(count == 20 for count in whole), f"each epoch has each item: {epochs}"
    assert state(cluster)["doing"] == "stopped"
    pool = VMPool(cluster.client, "default")
    check_events(pool)
    pool.close()
