"""What a rollout costs as runs grow: seconds per item to submit, drain and finalise, and the peak memory of each process.

Brings up its own Valkey and workers on loopback and leaves nothing. Rollouts do nothing; a second run of each size is given its
results, with answers of a real length, and is finalised only. Not a test: it says how this machine does today.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmark.items import Item
from rollout_tasks.config import parse_config
from rollout_tasks.redis_client import connect
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import Submission
from rollout_tasks.runs.submit import enqueue
from rollout_tasks.runs.verdict import Verdict, rollout_id_of
from scripts.bench.pipeline import NO_OP, import_submission, submit
from scripts.bench.services import PeakMemory, broker, results, wait_until, warm_process, worker

CHILDREN = 2
"""Of the worker that rolls out; another one finalises."""
SECONDS_PER_ITEM = 0.1
"""A run that takes longer hangs."""
ANSWER = "The tea costs 25.2 dollars a kilogram, because both kinds together cost 126 dollars and weigh 5 kg. " * 20
"""About 2 KB."""
LIMIT_MB = 400.0

Sample = dict[str, float]


def peak_mb(pid: int) -> float:
    """Returns the most memory that a process ever had resident."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmHWM")


def children_peak_mb(pid: int) -> float:
    """Returns the largest of a worker's children."""
    return max(peak_mb(child.pid) for child in psutil.Process(pid).children())


def cpu_seconds(pid: int) -> float:
    """Returns a process's processor time, which does not depend on how busy the machine is."""
    taken = psutil.Process(pid).cpu_times()
    return taken.user + taken.system


def children_cpu_seconds(pid: int) -> float:
    """Returns the processor time of a worker's children."""
    return sum(cpu_seconds(child.pid) for child in psutil.Process(pid).children())


def submit_finished(folder: Path, items: int) -> tuple[str, float]:
    """Sends a run whose rollouts all have a result; returns its id and when that began (seconds since the epoch)."""
    config = parse_config({"env_mode": "math", "metric": "exact_match", "output_dir": folder, "data": {"path": "none"}})
    run_folder = RunFolder(folder / f"finished-{items}")
    run_folder.description.create(config, _generated_items(items), data_path="none", data_name="growth")
    kept = [
        Verdict(rollout_id_of(item.id, 0), 1, "completed", answer=ANSWER + item.answer)
        for item in _generated_items(items)
    ]
    for verdict in kept:
        result = run_folder.rollout(verdict.rollout_id) / "result.json"
        result.parent.mkdir(parents=True)
        result.write_text(verdict.as_json() + "\n")
    submission = Submission(
        run_folder.path.name, config, run_folder, list(_generated_items(items)), kept, (), resumed=True
    )
    enqueue(submission, RunStore(connect(tries=1)))
    return submission.run_id, time.time()


def _generated_items(items: int) -> Iterator[Item]:
    return (
        Item(f"item-{number}", f"How much is tea number {number}?", str(number), {"domain": f"shop {number % 7}"})
        for number in range(items)
    )


def rolled_out(items: int, folder: Path) -> Sample:
    """A run of rollouts that do nothing, from submitting to the report."""
    with broker() as stack:
        data = stack.folder / "no-ops.jsonl"
        data.write_text("".join(f'{{"id": "{number}", "question": "none"}}\n' for number in range(items)))
        values: dict[str, Any] = {"data": {"path": data}, "env_mode": "simulated", "simulated": NO_OP}
        values |= {"output_dir": folder, "run_id": f"rolled-out-{items}"}
        client = connect(tries=1)
        store, peak = RunStore(client), PeakMemory(client)
        with (
            worker(stack.logs, "rollout_tasks", CHILDREN, ["rollout.simulated"]) as ours,
            worker(stack.logs, "rollout_tasks", 1, ["finalize"]) as finalizer,
            warm_process(import_submission) as process,
            peak,
        ):
            run_id, began, sent = process.apply(submit, (values,))
            submitter = peak_mb(process.apply(os.getpid))
            patience = 60 + items * SECONDS_PER_ITEM
            wait_until(lambda: _pending(store, run_id) == 0, f"the rollouts of {run_id}", seconds=patience)
            drained = time.time()
            wait_until(lambda: store.state(run_id) == "done", f"the report of {run_id}", seconds=patience)
            ended = (folder / run_id / "report.md").stat().st_mtime
            return {
                "submit ms/item": 1e3 * (sent - began) / items,
                "drain ms/item": 1e3 * (drained - sent) / items,
                "finalise ms/item": 1e3 * (ended - drained) / items,
                "all ms/item": 1e3 * (ended - began) / items,
                "children's processor ms/item": 1e3 * children_cpu_seconds(ours.pid) / items,
                "main process's processor ms/item": 1e3 * cpu_seconds(ours.pid) / items,
                "finaliser's processor ms/item": 1e3 * children_cpu_seconds(finalizer.pid) / items,
                "Redis bytes/item": peak.bytes / items,
                "submitter MB": submitter,
                "worker's main process MB": peak_mb(ours.pid),
                "worker's child MB": children_peak_mb(ours.pid),
                "finaliser MB": children_peak_mb(finalizer.pid),
            }


def finished(items: int, folder: Path) -> Sample:
    """A run that is given its results, with answers of about 2 KB: its finalising alone."""
    with broker() as stack:
        store = RunStore(connect(tries=1))
        with (
            worker(stack.logs, "rollout_tasks", 1, ["finalize"]) as finalizer,
            warm_process(import_submission) as process,
        ):
            idle = children_cpu_seconds(finalizer.pid)
            run_id, began = process.apply(submit_finished, (folder, items))
            patience = 60 + items * SECONDS_PER_ITEM
            wait_until(lambda: store.state(run_id) == "done", f"the report of {run_id}", seconds=patience)
            ended = (folder / run_id / "report.md").stat().st_mtime
            return {
                "finalise with answers ms/item": 1e3 * (ended - began) / items,
                "of it processor ms/item": 1e3 * (children_cpu_seconds(finalizer.pid) - idle) / items,
                "finaliser with answers MB": children_peak_mb(finalizer.pid),
            }


def _pending(store: RunStore, run_id: str) -> int:
    progress = store.progress(run_id)
    return -1 if progress is None else progress.pending


def show(samples: dict[int, Sample]) -> None:
    """Prints the table."""
    table = Table("", *(f"{items:,}" for items in samples), title=f"rollouts; {os.cpu_count()} cores")
    for figure in next(iter(samples.values())):
        table.add_row(figure, *(f"{sample[figure]:,.2f}" for sample in samples.values()))
    console = Console(highlight=False)
    console.print(table)
    largest = max((value, name) for sample in samples.values() for name, value in sample.items() if name.endswith("MB"))
    met = "met" if largest[0] < LIMIT_MB else "not met"
    console.print(f"largest process: {largest[1]}, {largest[0]:.0f} (less than {LIMIT_MB:.0f}): {met}")


def main(
    items: Annotated[list[int] | None, typer.Option(help="Rollouts of a run; repeatable.", min=2)] = None,
    only_finalise: Annotated[bool, typer.Option(help="Leave out rolling out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures runs of several sizes, each with a broker and workers of its own."""
    samples: dict[int, Sample] = {}
    with results() as folder:
        for size in items or [1_000, 10_000, 100_000]:
            samples[size] = ({} if only_finalise else rolled_out(size, folder)) | finished(size, folder)
    if as_json:
        print(json.dumps({"figures": samples, "cores": os.cpu_count()}, indent=2))
    else:
        show(samples)


if __name__ == "__main__":
    typer.run(main)
