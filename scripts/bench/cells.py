"""What cells cost a rollout: the same tasks on the same kind of desktop, their code in cells and in the worker's own process.

Runs of the example tasks take turns with and without `--trust-tasks`. A pair is a task in two runs that follow each other; the
ratio of a pair's times is what cells add, whatever the machine does meanwhile. Memory is what a process has for itself.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.services import REPOSITORY
from scripts.bench.vm_hours import tasks_of

CELLS, WORKER = "in cells", "in the worker's process"
LOOK_SECONDS = 0.3
"""Between two looks at how much memory processes have."""
TEMPLATE = "rollout_tasks.cells.template"


class MemoryWatch:
    """The most memory that each of the processes of a command has had for itself, by what they are."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.most: dict[str, int] = {}

    def look(self) -> None:
        """Looks once."""
        for process in self._process.children(recursive=True):
            with suppress(psutil.Error):
                name = _name_of(process)
                if name:
                    self.most[name] = max(self.most.get(name, 0), process.memory_full_info().uss)


def _name_of(process: psutil.Process) -> str:
    command, parent = process.cmdline(), process.parent()
    above = parent.cmdline() if parent else []
    if TEMPLATE in command and TEMPLATE in above:
        return "a cell" if "bwrap" not in above[0] else "the template of cells"
    if (
        command == above
        and "worker" in command
        and any(word.endswith(("celery", "celery_command")) for word in command)
    ):
        return "a worker's child"
    return ""


@contextmanager
def memory_watched(pid: int) -> Iterator[MemoryWatch]:
    """Looks all the time while the block lasts."""
    watch, over = MemoryWatch(pid), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            with suppress(psutil.Error):
                watch.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def one_run(tree: Path, folder: Path, name: str, *, cells: bool) -> tuple[dict[str, float], dict[str, int]]:
    """Rolls the tasks out on one desktop, one after the other.

    Returns:
        Seconds that each task had its VM; the most memory of each kind of process.
    """
    command = [sys.executable, "scripts/submit.py", "--embedded", "--data-path", tree, "--env-mode", "osworld"]
    command += ["--provider", "local", "--num-vms", 1, "--num-rollouts", 1, "--output-dir", folder, "--run-id", name]
    command += [] if cells else ["--trust-tasks"]
    with (
        subprocess.Popen([str(word) for word in command], cwd=REPOSITORY, stdout=sys.stderr) as process,
        memory_watched(process.pid) as watch,
    ):
        if status := process.wait():
            raise SystemExit(f"run {name} ended with {status}")
    results = {
        path.parts[-3]: json.loads(path.read_text()) for path in (folder / name).glob("*/*/result.json")
    }  # by the item's folder
    if wrong := [item for item, one in results.items() if one.get("score") != 1]:
        raise SystemExit(f"run {name}: {wrong[0]} scored {results[wrong[0]].get('score')}")
    times = {item: one["lease"]["released"] - one["lease"]["allocated"] for item, one in results.items()}
    return times, watch.most


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Returns the geometric mean of ratios, and the bounds in which it lies with a probability of 95 % (Student's t)."""
    logarithms = [math.log(one) for one in ratios]
    mean = statistics.fmean(logarithms)
    half = stats.t.ppf(0.975, len(logarithms) - 1) * statistics.stdev(logarithms) / math.sqrt(len(logarithms))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main(
    tasks: Annotated[int, typer.Option(help="How many of the example tasks.", min=1)] = 5,
    rounds: Annotated[int, typer.Option(help="How often each is done in each of the two ways.", min=2)] = 6,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures what cells cost a rollout: time in pairs, and memory."""
    seconds: dict[str, list[dict[str, float]]] = {CELLS: [], WORKER: []}
    memory: dict[str, dict[str, int]] = {CELLS: {}, WORKER: {}}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        tree = Path(scratch) / "tree"
        tasks_of(tree, tasks)
        for number in range(rounds):
            for way in (CELLS, WORKER) if number % 2 else (WORKER, CELLS):  # neither is always the first
                name = f"{'cells' if way == CELLS else 'worker'}-{number}"
                times, most = one_run(tree, Path(scratch) / "results", name, cells=way == CELLS)
                seconds[way].append(times)
                memory[way] = {kind: max(most.get(kind, 0), memory[way].get(kind, 0)) for kind in most | memory[way]}
    pairs = [
        (cells[item], worker[item])
        for cells, worker in zip(seconds[CELLS], seconds[WORKER], strict=True)
        for item in cells
    ]
    mean, low, high = interval([cells / worker for cells, worker in pairs])
    figures: dict[str, Any] = {
        "pairs": len(pairs),
        "ratio": mean,
        "low": low,
        "high": high,
        "seconds": {
            CELLS: statistics.median(pair[0] for pair in pairs),
            WORKER: statistics.median(pair[1] for pair in pairs),
        },
        "memory": memory,
    }
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    table = Table("", CELLS, WORKER)
    table.add_row("seconds of a rollout, median", *(f"{figures['seconds'][way]:.2f}" for way in (CELLS, WORKER)))
    for kind in sorted(memory[CELLS] | memory[WORKER]):
        table.add_row(
            f"MB that {kind} has for itself", *(f"{memory[way].get(kind, 0) / 1e6:.0f}" for way in (CELLS, WORKER))
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"cells over the worker's process: {mean:.3f} ({low:.3f} to {high:.3f}, {len(pairs)} pairs)")


if __name__ == "__main__":
    typer.run(main)
