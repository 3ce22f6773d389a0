"""What must hold after a play, whatever fault it had: sentences about what does not."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from benchmark.report import read_report
from rollout_tasks.cleanup_process import members
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_ids
from tests.checks import check_events
from tests.faults.desk import QUEUE
from tests.faults.machines import two_users
from tests.faults.playground import CHILDREN, HOST, ITEMS, WORKERS, Playground
from tests.faults.processes import wait_until
from vm_pool.errors import PoolError

_LOOK_FOR_LOST_WORK = "reconcile:lock"
SETTLE_SECONDS = 45.0
"""How long what a fault left may take to be gone: leases, messages, a worker's patience with a dead connection."""
_LEFTOVERS_SECONDS = 3.0
"""How long keys may stay once everything else is as it should be."""


def judge(ground: Playground, run_id: str, restarts: dict[str, int], *, rollouts: int = len(ITEMS)) -> list[str]:
    """Everything that is wrong after a run is over.

    Args:
        ground: Where it was played.
        run_id: The run that is over.
        restarts: How often each service had been started again before the play.
        rollouts: How many it has.
    """
    over, looking = time.monotonic(), ground.client.get(_LOOK_FOR_LOST_WORK)
    problems = [*_results(ground, run_id, rollouts), *two_users(ground.machines.touches)]
    checks: list[tuple[Callable[[], str], float]] = [
        (lambda: _services(ground, restarts), SETTLE_SECONDS),
        (lambda: _pool(ground), SETTLE_SECONDS),
        (lambda: _broker(ground), SETTLE_SECONDS),
        (lambda: _hearing(ground, over), SETTLE_SECONDS),
        (lambda: _looking(ground, looking), SETTLE_SECONDS),
        (lambda: _leftovers(ground), _LEFTOVERS_SECONDS),
    ]
    for check, seconds in checks:
        last = [""]

        def holds(check: Callable[[], str] = check, last: list[str] = last) -> bool:
            last[0] = check()
            return not last[0]

        if not wait_until(holds, seconds):
            problems.append(last[0])
    try:
        check_events(ground.pool)
    except AssertionError as error:
        problems.append(f"the pool's events: {error}")
    return problems


def _results(ground: Playground, run_id: str, rollouts: int) -> list[str]:
    """One right result per rollout, in the folder and in the store alike; finalised once."""
    problems = []
    store, folder = ground.store, RunFolder(ground.results / run_id)
    names = rollout_ids(folder.description.items(), folder.description.config().rollouts_per_item)
    if len(names) != rollouts:
        problems.append(f"the folder has {len(names)} rollouts of {rollouts}")
    committed = {verdict.rollout_id: verdict for verdict in store.verdicts(run_id)}
    if sorted(committed) != sorted(names):
        problems.append(f"committed are {sorted(committed)}")
    for name in names:
        on_disk, stored = folder.verdict(name), committed.get(name)
        if on_disk is None:
            problems.append(f"{name} has no result in the folder")
        elif on_disk != stored:
            problems.append(f"{name}: the folder says {on_disk}, the run store {stored}")
        elif on_disk.status != "completed" or on_disk.score != 1.0:
            problems.append(
                f"{name} ended as {on_disk.status} ({on_disk.failure_class}: {on_disk.error}), score {on_disk.score}"
            )
    try:
        summary = read_report(folder.evaluation)["summary"]
        if summary["coverage"] != 1.0 or summary["total_rollouts"] != rollouts:
            problems.append(f"the report says {summary}")
    except (OSError, ValueError, KeyError) as error:
        problems.append(f"there is no report: {error}")
    finalised = store.client.hget(f"{{run:{run_id}}}", "times_finalised")
    if finalised != "1":
        problems.append(f"the run was finalised {finalised} times")
    return problems


def _services(ground: Playground, restarts: dict[str, int]) -> str:
    """Nobody ended but whom the fault killed, and everybody has the processes that belong to it."""
    for name, service in ground.services.items():
        killed = len(ground.director.killed_pids & service.mains)
        ended = service.restarts - restarts[name] - killed
        if ended > 0:
            return f"{name} ended by itself {ended} times"
        while len(service.sessions) > 1:
            if left := [process.pid for process in members(service.sessions[0])]:
                return f"{name}: processes {left} of an earlier session are left"
            del service.sessions[0]
        expected = 1 + (CHILDREN if name in WORKERS else 0)
        if len(service.processes) != expected:
            return f"{name} has {len(service.processes)} processes, not {expected}"
    return ""


def _pool(ground: Playground) -> str:
    """Every VM is free and nobody waits."""
    try:
        status = ground.pool.status()
    except PoolError as error:
        return str(error)
    if status.waiters:
        return f"left waiting for a VM: {[waiter.holder for waiter in status.waiters]}"
    states = {vm.vm_id: vm.state.value for vm in status.vms}
    if sorted(states) != [f"{HOST}-0", f"{HOST}-1"] or set(states.values()) != {"free"}:
        return f"the VMs are {states}"
    return ""


def _broker(ground: Playground) -> str:
    """No message waits or is unacknowledged, no run is active. (A look for lost work may be on its way at any time.)"""
    client = ground.client
    waiting = [message for queue in (QUEUE, "finalize") for message in client.lrange(queue, 0, -1)]
    delivered = {tag: json.loads(entry)[0] for tag, entry in client.hgetall("unacked").items()}
    stuck = [_task(json.loads(message)) for message in waiting] + [_task(message) for message in delivered.values()]
    if left := [task for task in stuck if task != "reconcile"]:
        return f"messages are left: {left}"
    if len(delivered) > len(WORKERS) * CHILDREN:
        return f"{len(delivered)} messages are unacknowledged"
    index = set(client.zrange("unacked_index", 0, -1))
    if extra := index - set(client.hkeys("unacked")):
        return f"unacked_index names messages that unacked lacks: {sorted(extra)}"
    if active := client.smembers("runs:active"):
        return f"runs are still active: {sorted(active)}"
    return ""


def _task(message: dict[str, Any]) -> str:
    return str(message.get("headers", {}).get("task"))


_KNOWN_KEYS = re.compile(
    r"_kombu\.binding.*|unacked.*|workers|reconcile:\w+|rollout\.desk|finalize|runs:active|celery-task-meta-.*|\{run:.*"
    r"|\{pool:default\}:(vms|vm:host-[01]|free|timers|hosts|host:host|work:host|counters|events|server.*|generation.*)"
)


def _leftovers(ground: Playground) -> str:
    """No key is there that will never go and belongs to nothing that lasts."""
    client = ground.client
    lasting = [
        key for key in client.scan_iter("*", count=1000) if not _KNOWN_KEYS.fullmatch(key) and client.ttl(key) == -1
    ]
    if lasting:
        return f"keys that never expire are left: {sorted(lasting)}"
    return ""


def _hearing(ground: Playground, since: float) -> str:
    """Every worker asks for messages, every host for work."""
    for name, service in ground.services.items():
        if ground.director.last_heard.get((service.pid, True), 0.0) < since:
            return f"{name} has not asked for {'work' if name == HOST else 'messages'} since the run was over"
    return ""


def _looking(ground: Playground, held: str | None) -> str:
    """Whoever looked for lost work as the run ended is done with it, so that others can look."""
    if held is not None and ground.client.get(_LOOK_FOR_LOST_WORK) == held:
        return f"{_LOOK_FOR_LOST_WORK} is still held by whoever had it as the run ended, so nobody looks for lost work"
    return ""
