"""The utilisation bench on a real pool: its fleets do every item under a lease of its own, and its command runs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from scripts.bench.fleet import Plan, run_fleets
from scripts.bench.schedule import draw_items, lower_bound
from vm_pool import TransitionRefused, VMPool, VMState

COMMAND = Path(__file__).resolve().parents[3] / "scripts" / "bench" / "utilisation.py"


def test_fleets_do_every_item_under_a_lease_and_reset_after_it(redis_url: str) -> None:
    plans = [Plan(vms=12, workers=18, items=draw_items(60, seed)) for seed in range(2)]

    courses, load = asyncio.run(run_fleets(redis_url, plans, 0.05))

    for number, (plan, (visits, makespan)) in enumerate(zip(plans, courses, strict=True)):
        assert sorted(map(id, plan.items)) == sorted(id(visit.item) for visit in visits)
        assert sum(visit.first for visit in visits) == plan.workers
        assert all(visit.requested_at <= visit.granted <= makespan for visit in visits)
        assert makespan >= lower_bound(plan.items, plan.workers, plan.vms)
        pool = VMPool(redis.Redis.from_url(redis_url), f"fleet-{number}")
        status = pool.status()
        assert len({vm.host for vm in status.vms}) == 2
        assert VMState.LEASED not in status.counts()
        assert not status.waiters
        assert sum(vm.grants for vm in status.vms) == status.counters["released"] == 60
        # The last resets may be cut short by the end; nothing was lent out without one.
        assert sum(vm.resets for vm in status.vms) >= 60 - plan.vms
        assert all(vm.resets >= vm.grants - 1 for vm in status.vms)
    assert load.client_cores > 0
    assert load.redis_cores > 0


def test_a_lost_lease_ends_the_bench(redis_url: str) -> None:
    pool = VMPool(redis.Redis.from_url(redis_url), "fleet-0")

    def take_one_back() -> None:
        give_up_at = time.monotonic() + 30
        while time.monotonic() < give_up_at:
            for vm in pool.status().vms:
                if vm.state is VMState.LEASED:
                    with suppress(TransitionRefused):
                        pool.force_release(vm.vm_id)
                        return

    thief = threading.Thread(target=take_one_back)
    thief.start()
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run_fleets(redis_url, [Plan(vms=2, workers=3, items=draw_items(30, 0))], 0.2))
    thief.join()
    assert caught.group_contains(RuntimeError, match=r"^worker \d lost its lease of host-0-\d$")


@pytest.mark.slow
def test_the_quick_table(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--quick", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    rows = json.loads(done.stdout)["rows"]
    assert [(row["vms"], row["workers"]) for row in rows] == [
        *((10, 10), (10, 20), (10, 50)),
        *((100, 100), (100, 200), (100, 500)),
    ]
    assert all(0 < row["held"] < row["busy"] < row["busy_until_last_grant"] <= 1 for row in rows)
    assert all(row["delay_p50"] <= row["delay_p99"] for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_more_workers_than_connections_are_refused_in_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--vms", "9999", "--ratio", "5"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "need 50595 connections" in done.stderr
    assert "Traceback" not in done.stderr
