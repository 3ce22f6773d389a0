"""What must hold after any disaster, read from what remains: the run's folder, the run store and the pool's events."""

from __future__ import annotations

import json
import time
from collections import Counter

from benchmark.report import read_report
from rollout_tasks.errors import FailureClass
from rollout_tasks.runs.verdict import rollout_ids
from tests.cluster import Cluster, Run
from vm_pool.pool import VMPool
from vm_pool.states import VMState


def check_run(run: Run, *, rollouts: int) -> Counter[str]:
    """One committed result per rollout, complete coverage, everything classified, finalised once.

    Returns:
        How many rollouts ended in which way (``completed`` or a failure class).
    """
    store = run.cluster.store
    names = rollout_ids(run.folder.description.items(), run.config.rollouts_per_item)
    assert len(names) == rollouts
    committed = {verdict.rollout_id: verdict for verdict in store.verdicts(run.run_id)}
    assert sorted(committed) == sorted(names)
    for name in names:
        on_disk = run.folder.verdict(name)
        assert on_disk is not None, f"{name} has no result.json"
        assert on_disk == committed[name], f"{name}: the folder and the run store disagree"
        assert (run.folder.rollout(name) / "result.json").is_file(), f"{name}: its verdict was never settled"
        left = [path.name for path in run.folder.rollout(name).rglob(".*")]
        assert not left, f"{name}: temporary files are left: {left}"
    report = read_report(run.folder.evaluation)
    assert report["summary"]["coverage"] == 1.0
    assert report["summary"]["total_rollouts"] == rollouts
    assert store.client.hget(f"{{run:{run.run_id}}}", "times_finalised") == "1"
    assert run.run_id not in store.active()
    ended: Counter[str] = Counter()
    for verdict in committed.values():
        if verdict.status == "completed":
            assert verdict.score == 1.0
            ended["completed"] += 1
        else:
            assert isinstance(verdict.failure_class, FailureClass)
            assert verdict.error
            ended[verdict.failure_class.value] += 1
    return ended


def check_pool(cluster: Cluster, *, name: str = "default", seconds: float = 60) -> None:
    """No VM was ever held by two, none is left leased, each was reset between two holders, fences only grew."""
    pool = VMPool(cluster.client, name)
    deadline = time.monotonic() + seconds
    while True:
        status = pool.status()
        leased = [vm.vm_id for vm in status.vms if vm.state is VMState.LEASED]
        if not leased and not status.waiters:
            break
        assert time.monotonic() < deadline, f"left behind: leased {leased}, waiting {status.waiters}"
        time.sleep(0.1)
    check_events(pool)


def check_events(pool: VMPool) -> None:
    """Reads the whole event stream."""
    held: dict[str, str] = {}
    dirty: set[str] = set()
    fences: dict[str, int] = {}
    after = "-"
    while events := pool.events(after, limit=1000):
        after = events[-1].id
        for event in events:
            if event.event == "granted":
                assert event.vm_id not in held, (
                    f"{event.vm_id} granted to {event.holder} while {held[event.vm_id]} had it"
                )
                assert event.vm_id not in dirty, f"{event.vm_id} granted to {event.holder} without a reset"
                assert event.fence > fences.get(event.vm_id, 0), f"{event.vm_id}: the fence did not grow"
                held[event.vm_id] = event.holder
                fences[event.vm_id] = event.fence
            elif event.event in {"released", "expired", "revoked", "returned"}:
                held.pop(event.vm_id, None)
                dirty.add(event.vm_id)
            elif event.event in {"reset_done", "booted"}:
                dirty.discard(event.vm_id)


def check_broker(cluster: Cluster, *, seconds: float = 60) -> None:
    """No message is left waiting or unacknowledged."""
    deadline = time.monotonic() + seconds
    while True:
        left = {queue: cluster.client.llen(queue) for queue in ("rollout.simulated", "rollout.light", "rollout.py")}
        stuck = [json.loads(entry)[0]["headers"]["task"] for entry in cluster.client.hvals("unacked")]
        if not any(left.values()) and "rollout" not in stuck:
            return
        assert time.monotonic() < deadline, f"left in the broker: {left}, unacknowledged {stuck}"
        time.sleep(0.2)
