"""The pipeline beside bare peers on the same machine: a Celery chord that does nothing, and a loop of processes without durability.

Brings up its own Valkey, workers and scripted model on loopback and leaves nothing. Within a round the pipeline and its peers take
turns, and each round gives one ratio; the table shows medians. Not a test: it says how fast this machine is today. What the peers
do is in peers.py.

Let the machine rest for five minutes after many files were deleted, as by the tests or by this program: for that long, ext4 passes
over every inode that was deleted, one by one, whenever it makes a file. Rollouts make files, and the peers make none.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import redis
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmark.items import Item, load_items
from rollout_tasks.config import parse_config
from rollout_tasks.models.scripted.process import ScriptedModelProcess
from rollout_tasks.redis_client import connect
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import load_benchmark, new_submission
from rollout_tasks.runs.submit_to_workers import submit_to_workers
from scripts.bench import peers
from scripts.bench.services import REPOSITORY, PeakMemory, broker, results, wait_until, warm_process, worker

EXAMPLES = REPOSITORY / "examples" / "items.jsonl"
NO_OP = {"seconds": [0.0, 0.0], "steps": 1, "needs_vm": False}
CHILDREN = 2
"""Of the workers that do nothing."""

Sample = dict[str, float]


def import_submission() -> None:
    """Imports what submitting takes."""
    # Here, because the tasks' module reads the broker's address, which `broker` sets first.
    from rollout_tasks import tasks  # noqa: F401
    from rollout_tasks.runs import enqueue  # noqa: F401

    RunStore(connect(tries=1)).state("none")


def submit(values: dict[str, Any]) -> tuple[str, float, float]:
    """Submits a run; returns its id, when that began and when it was done (seconds since the epoch)."""
    began = time.time()
    config = parse_config(values)
    submission, _ = submit_to_workers(new_submission(config, load_benchmark(config)))
    return submission.run_id, began, time.time()


def wait_for_run(client: redis.Redis, run_id: str) -> None:
    """Waits for a run's end and checks that nothing failed in it."""
    store = RunStore(client)
    wait_until(lambda: store.state(run_id) == "done", f"run {run_id}")
    progress = store.progress(run_id)
    if progress is None or progress.completed != progress.total:
        raise RuntimeError(f"run {run_id}: not every rollout completed: {progress}")


def no_ops(items: int, folder: Path) -> Sample:
    """So many rollouts that do nothing: seconds from submitting to the report, and the broker's peak memory."""
    with broker() as stack:
        data = stack.folder / "no-ops.jsonl"
        data.write_text("".join(f'{{"id": "{number}", "question": "none"}}\n' for number in range(items)))
        values = {"data": {"path": data}, "env_mode": "simulated", "simulated": NO_OP, "output_dir": folder}
        client = connect(tries=1)
        peak = PeakMemory(client)
        with worker(stack.logs, "rollout_tasks", CHILDREN), warm_process(import_submission) as process, peak:
            run_id, began, sent = process.apply(submit, (values,))
            wait_for_run(client, run_id)
            ended = (folder / run_id / "report.md").stat().st_mtime
    return {"seconds": ended - began, "submit_seconds": sent - began, "bytes_per_item": peak.bytes / items}


def bare_chord(tasks: int) -> Sample:
    """So many empty tasks: seconds from sending the chord to its callback, and the broker's peak memory."""
    with broker() as stack:
        client = connect(tries=1)
        peak = PeakMemory(client)
        with worker(stack.logs, peers.__name__, CHILDREN), warm_process(peers.connect_app) as process, peak:
            began, sent = process.apply(peers.send_chord, (tasks,))
            wait_until(lambda: client.get(peers.CALLBACK_KEY), "the chord's callback")
            ended = float(str(client.get(peers.CALLBACK_KEY)))
    return {"seconds": ended - began, "submit_seconds": sent - began, "bytes_per_item": peak.bytes / tasks}


def steady_rate(ended: list[float]) -> float:
    """Ends per second from the first tenth's end to the last tenth's beginning: without starting, warming up, running out."""
    ended = sorted(ended)
    first, last = len(ended) // 10, len(ended) - 1 - len(ended) // 10
    return (last - first) / (ended[last] - ended[first])


def rollouts(items: list[Item], processes: int, folder: Path) -> Sample:
    """Conversations of the pipeline per second, and the worker that had them: its start and its children's size."""
    with broker() as stack:
        data = _written(items, stack.folder)
        values: dict[str, Any] = {"env_mode": "math", "metric": "numeric_match", "output_dir": folder}
        client = connect(tries=1)
        with (
            ScriptedModelProcess(data) as model,
            worker(stack.logs, "rollout_tasks", processes) as ours,
            warm_process(import_submission) as process,
        ):
            values |= {"data": {"path": data}, "model": {"name": "scripted", "base_url": model.url}}
            run_id, _, _ = process.apply(submit, (values,))
            wait_for_run(client, run_id)
            ended = [verdict.finished for verdict in RunStore(client).verdicts(run_id)]
            children = ours.children_mb()
    return {
        "per_second": steady_rate(ended),
        "ready_seconds": ours.seconds_to_ready,
        "child_rss_mb": max(rss for rss, _ in children),
        "child_pss_mb": max(pss for _, pss in children),
    }


def bare_loop(items: list[Item], processes: int) -> Sample:
    """The same conversations per second, in processes that keep nothing."""
    with broker() as stack, ScriptedModelProcess(_written(items, stack.folder)) as model:
        return {"per_second": steady_rate(peers.converse_all(items, model.url, processes))}


def _written(items: list[Item], folder: Path) -> Path:
    path = folder / "items.jsonl"
    path.write_text("".join(json.dumps(item.as_dict()) + "\n" for item in items))
    return path


def subjects(data_path: Path | None, answer_pattern: str | None, wanted: int) -> list[Item]:
    """So many items to talk about; repeated under other ids where the file has fewer."""
    found = load_items(data_path or EXAMPLES, answer_pattern=answer_pattern).items
    fitting = [item for item in found if item.env_config.get("env_mode", "math") == "math"]
    chosen = (fitting[number % len(fitting)] for number in range(wanted))
    return [
        Item(str(number), item.question, item.answer, item.metadata, item.env_config)
        for number, item in enumerate(chosen)
    ]


def one_round(number: int, tasks: int, items: list[Item], processes: int, folder: Path) -> dict[str, Sample]:
    """Every candidate once; the other way round every other time, so that nobody is always the first."""
    candidates = {
        "no-op rollouts": lambda: no_ops(tasks, folder),
        "bare chord": lambda: bare_chord(tasks),
        "rollouts": lambda: rollouts(items, processes, folder),
        "bare loop": lambda: bare_loop(items, processes),
    }
    order = list(candidates) if number % 2 == 0 else list(reversed(candidates))
    return {name: candidates[name]() for name in order}


def targets(taken: dict[str, Sample]) -> dict[str, float]:
    """Returns a round's figures that have a target."""
    ours, talks = taken["no-op rollouts"], taken["rollouts"]
    return {
        "time over the bare chord's": ours["seconds"] / taken["bare chord"]["seconds"],
        "peak Redis bytes per item": ours["bytes_per_item"],
        "rate over the bare loop's": talks["per_second"] / taken["bare loop"]["per_second"],
        "seconds until a worker is ready": talks["ready_seconds"],
        "MB of a child (RSS)": talks["child_rss_mb"],
    }


AT_MOST = {
    "time over the bare chord's": 1.5,
    "peak Redis bytes per item": 3 * 1024,
    "seconds until a worker is ready": 3,
    "MB of a child (RSS)": 120,
}
AT_LEAST = {"rate over the bare loop's": 0.7}


def met(name: str, value: float) -> bool:
    """Whether a figure is within its limit."""
    return value <= AT_MOST[name] if name in AT_MOST else value >= AT_LEAST[name]


def medians(samples: list[Sample]) -> Sample:
    """The median of every figure."""
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


def show(figures: dict[str, Sample], reached: Sample) -> None:
    """Prints the tables."""
    console = Console(highlight=False)
    table = Table("", "figure", title=f"medians; {os.cpu_count()} cores")
    table.add_column("value", justify="right")
    for name, sample in figures.items():
        for figure, value in sample.items():
            table.add_row(name, figure.replace("_", " "), f"{value:,.2f}")
    console.print(table)
    for name, value in reached.items():
        limit = f"at most {AT_MOST[name]:g}" if name in AT_MOST else f"at least {AT_LEAST[name]:g}"
        console.print(f"{name}: {value:,.2f} ({limit}): {'met' if met(name, value) else 'not met'}")


def main(
    items: Annotated[int, typer.Option(help="No-op items, and tasks of the chord.", min=2)] = 10_000,
    conversations: Annotated[int, typer.Option(help="Rollouts that talk to the model.", min=10)] = 1_000,
    data_path: Annotated[
        Path | None, typer.Option(help="What they are about, such as GSM8K's test.jsonl; default: the math examples.")
    ] = None,
    answer_pattern: Annotated[str | None, typer.Option(help="As for scripts/submit.py.")] = None,
    processes: Annotated[int, typer.Option(help="Conversations at a time.", min=1)] = 4,
    repeats: Annotated[int, typer.Option(help="Rounds; the figures are their medians.", min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures the pipeline beside a bare Celery chord and a bare loop of processes."""
    chosen = subjects(data_path, answer_pattern, conversations)
    with results() as folder:
        rounds = [one_round(number, items, chosen, processes, folder) for number in range(repeats)]
    figures = {name: medians([taken[name] for taken in rounds]) for name in rounds[0]}
    reached = medians([targets(taken) for taken in rounds])
    if as_json:
        summary = {name: {"value": value, "met": met(name, value)} for name, value in reached.items()}
        print(json.dumps({"figures": figures, "targets": summary, "rounds": rounds, "cores": os.cpu_count()}, indent=2))
    else:
        show(figures, reached)


if __name__ == "__main__":
    typer.run(main)
