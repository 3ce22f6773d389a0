"""How busy VMs are under three ways to give them rollouts: whenever one ends, whenever a group ends, whenever a batch ends.

Groups of rollouts of one item each, on simulated VMs of a real pool, with real workers and runs. An episode has 1 to 30 steps of
0.2 s each, 15.5 on average; a step of a computer-use agent takes some 10 to 30 times as long, so that the pipeline's own time
weighs as much more here. Not a test: it says how this machine does today.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import redis
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmark.items import Item, LoadedItems
from rollout_tasks.api import embedded_services
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.runs.store import RunStore
from rollout_tasks.training.sampling_policy import FixedPolicy
from rollout_tasks.training.service_loop.group_run import GroupRun, submit_group
from rollout_tasks.training.service_loop.item_sources import FileSource
from rollout_tasks.training.service_loop.journal import Begun, Journal
from rollout_tasks.training.service_loop.loop import ServiceLoop, ServiceOptions
from scripts.bench.services import wait_until
from vm_pool.pool import VMPool

STEP_SECONDS, MOST_STEPS = 0.2, 30
RESET_SECONDS = 0.1
GROUP = 4
"""Rollouts of an item."""
WARM_SECONDS = 15.0
"""Not measured: the first rollouts begin and end together."""
_LOOK_SECONDS = 0.1

Feeder = Callable[[RunConfig, RunStore, Path, int, threading.Event], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What one way did."""

    utilisation: float
    """The share of the VMs' time in which a rollout held them."""
    rollouts_per_minute: float


def rollout_by_rollout(config: RunConfig, store: RunStore, folder: Path, vms: int, over: threading.Event) -> None:
    """As `rollouts serve` does it."""
    items = LoadedItems("bench", "bench", tuple(Item(f"item-{number}", "?") for number in range(10_000)))
    loop = ServiceLoop(
        ServiceOptions("bench", config, 2 * vms),
        Journal(folder),
        FileSource(lambda: items),
        FixedPolicy(GROUP),
        store,
    )
    while not over.is_set():
        loop.step()
        over.wait(_LOOK_SECONDS)


def group_by_group(config: RunConfig, store: RunStore, folder: Path, vms: int, over: threading.Event) -> None:
    """A new group begins when another has ended, as asynchronous trainers do whose unit is a prompt."""
    _in_turns(config, store, folder, over, begins=lambda running: running < vms // GROUP)


def batch_by_batch(config: RunConfig, store: RunStore, folder: Path, vms: int, over: threading.Event) -> None:
    """The next batch of two rollouts for each VM begins when all of the last one have ended, as synchronous trainers do."""
    _in_turns(config, store, folder, over, begins=lambda running: running == 0, at_a_time=2 * vms // GROUP)


def _in_turns(
    config: RunConfig,
    store: RunStore,
    folder: Path,
    over: threading.Event,
    *,
    begins: Callable[[int], bool],
    at_a_time: int = 1,
) -> None:
    running: list[GroupRun] = []
    number = 0
    while not over.is_set():
        running = [group for group in running if not group.is_over(group.progress(store))]
        while begins(len(running)):
            for _ in range(at_a_time):
                number += 1
                begun = Begun(number, str(number), f"item-{number}", f"{folder.name}-{number}", GROUP, MOST_STEPS)
                submit_group(begun, Item(begun.item_id, "?"), config)
                running.append(GroupRun(begun, Path(config.output_dir)))
        over.wait(_LOOK_SECONDS)


WAYS: dict[str, Feeder] = {
    "rollout by rollout": rollout_by_rollout,
    "group by group": group_by_group,
    "batch by batch": batch_by_batch,
}


def measure(feeder: Feeder, vms: int, seconds: float, folder: Path, client: redis.Redis) -> Result:
    """Feeds VMs in one way for a while, and waits until they are idle again."""
    folder.mkdir()
    simulated = {"seconds": [STEP_SECONDS, STEP_SECONDS * MOST_STEPS], "steps": 1, "seed": 7}
    config = parse_config({"env_mode": "simulated", "simulated": simulated, "output_dir": str(folder / "runs")})
    store, over = RunStore(client), threading.Event()
    thread = threading.Thread(target=feeder, args=(config, store, folder, vms, over))
    thread.start()
    try:
        time.sleep(WARM_SECONDS)
        began = time.time()
        time.sleep(seconds)
        ended = time.time()
    finally:
        over.set()
        thread.join()
    wait_until(lambda: not store.active(), "the last rollouts", pause=0.5)
    return _result(client, vms, began, ended)


@contextlib.contextmanager
def _services(vms: int, folder: Path) -> Iterator[str]:
    options = {"boot_seconds": 0.1, "reset_seconds": RESET_SECONDS}
    with embedded_services(
        2 * vms, num_vms=vms, provider="simulated", provider_options=options, logs=folder / "logs"
    ) as url:
        yield url


def _result(client: redis.Redis, vms: int, began: float, ended: float) -> Result:
    """Reads what the pool says of the time between two moments."""
    held: dict[str, float] = {}
    busy, released = 0.0, 0
    pool = VMPool(client, "default")
    after = "-"
    while events := pool.events(after):
        after = events[-1].id
        for event in events:
            if event.event == "granted":
                held[event.vm_id] = event.at
            elif event.event in {"released", "expired"} and event.vm_id in held:
                since = held.pop(event.vm_id)
                busy += max(0.0, min(event.at, ended) - max(since, began))
                released += began <= event.at < ended
    pool.close()
    return Result(busy / (vms * (ended - began)), 60 * released / (ended - began))


def main(
    vms: Annotated[int, typer.Option(min=GROUP, help="Simulated VMs; a multiple of four.")] = 8,
    seconds: Annotated[float, typer.Option(min=10, help="How long each way is measured.")] = 120,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Compares three ways to give VMs rollouts."""
    found: dict[str, Result] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        _services(vms, Path(folder)) as url,
        redis.Redis.from_url(url, decode_responses=True) as client,
    ):
        for number, (name, feeder) in enumerate(WAYS.items()):
            sys.stderr.write(f"{name} ...\n")
            found[name] = measure(feeder, vms, seconds, Path(folder, f"way-{number}"), client)
    if as_json:
        print(json.dumps({name: asdict(one) for name, one in found.items()}))
        return
    table = Table("a new rollout begins when ... has ended", "VMs in use", "rollouts a minute", "compared")
    most = found["rollout by rollout"].rollouts_per_minute
    for name, one in found.items():
        share = f"{one.rollouts_per_minute / most:.2f}"
        table.add_row(name, f"{one.utilisation:.1%}", f"{one.rollouts_per_minute:.0f}", share)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
