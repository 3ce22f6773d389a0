"""How fast real desktops are on this machine: start, revert, step, accessibility tree, evaluation, memory, many at a time.

Takes the providers themselves, and `Desktop`, through which rollouts act, so nothing here is faster than a rollout. Not a test:
it says how fast this machine is today. How many rollouts a VM gets through in an hour is in vm_hours.py.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.osworld.attached_desktop import Desktop
from vm_pool.gate_relay import relayed
from vm_pool.providers import load_provider
from vm_pool.providers.base import Provider
from vm_pool.unpooled import UnpooledVM, unpooled_vm

TASK: dict[str, Any] = {
    "id": "bench",
    "instruction": "Nothing.",
    "config": [],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": "echo 1", "shell": True},
        "expected": {"type": "rule", "rules": {"expected": "1\n"}},
    },
}
CALC = ["soffice", "--calc", "--norestore", "--nologo"]
CALC_SECONDS = 60.0
AT_A_TIME = {"qemu": [1, 2, 4]}
"""Where virtual machines are emulated, each keeps two cores busy."""
AT_A_TIME_ELSE = [1, 4, 12]

Samples = dict[str, list[float]]
"""Seconds of each measurement by what was measured."""


class Progress:
    """Says on standard error what is measured now."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, sentence: str) -> None:
        """Prints it."""
        self._console.print(f"[dim]{sentence}[/dim]")


def timed(samples: Samples, name: str, work: Callable[[], Any]) -> Any:
    """Does something and notes how long it took."""
    began = time.perf_counter()
    outcome = work()
    samples.setdefault(name, []).append(time.perf_counter() - began)
    return outcome


@contextmanager
def desktop_on(vm: UnpooledVM, folder: Path, *, a11y: bool) -> Iterator[Desktop]:
    """The desktop as a rollout has it."""
    observation = "screenshot_a11y_tree" if a11y else "screenshot"
    config = DesktopConfig(action_space="pyautogui", observation_type=observation)
    with relayed(vm.endpoint) as there, closing(Desktop(there.address, there.ports, config, folder)) as desktop:
        yield desktop


def starts(provider: Provider, samples: Samples, repeats: int) -> None:
    """From nothing to a checked screenshot, and back to nothing. The first one finds out what the machine can, and may build."""
    with ExitStack() as stack:
        timed(samples, "very first start", lambda: stack.enter_context(unpooled_vm(provider, "bench-0")))
    for number in range(repeats):
        with ExitStack() as stack:
            timed(samples, "start", lambda: stack.enter_context(unpooled_vm(provider, f"bench-{number}")))  # noqa: B023
            timed(samples, "stop", stack.pop_all().close)


def life(provider: Provider, samples: Samples, repeats: int, folder: Path) -> None:
    """Attaching, steps, trees, evaluations and reverts of one VM."""
    with unpooled_vm(provider, "bench-0") as vm:
        for number in range(repeats):
            for a11y in (False, True):
                here = folder / f"{number}-{a11y}"
                here.mkdir()
                with ExitStack() as stack:
                    desktop = timed(samples, "attach", lambda: stack.enter_context(desktop_on(vm, here, a11y=a11y)))  # noqa: B023
                    timed(samples, "reset of a task", lambda: desktop.set_up(TASK))  # noqa: B023
                    name = "step with tree" if a11y else "step"
                    for x in range(100, 200, 20):
                        timed(samples, name, lambda: desktop.act(f"pyautogui.moveTo({x}, {x})", 0))  # noqa: B023
                    timed(samples, "tree", desktop.controller.get_accessibility_tree)
                    timed(samples, "evaluate", desktop.score)

            def revert() -> None:
                provider.reset(vm.vm_id)
                provider.check(vm.vm_id)

            timed(samples, "revert", revert)


def calc_tree(provider: Provider, samples: Samples, repeats: int, folder: Path) -> None:
    """Returns the accessibility tree with LibreOffice Calc open, once its window is there."""
    with unpooled_vm(provider, "bench-0") as vm, desktop_on(vm, folder, a11y=True) as desktop:
        desktop.set_up({**TASK, "config": [{"type": "launch", "parameters": {"command": CALC}}]})
        give_up_at = time.monotonic() + CALC_SECONDS
        while "Calc" not in str(desktop.controller.get_accessibility_tree()):
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"LibreOffice Calc has no window after {CALC_SECONDS:g} s")
            time.sleep(0.5)
        for _ in range(repeats):
            timed(samples, "tree with Calc", desktop.controller.get_accessibility_tree)


def many(provider: Provider, number: int, seconds: float, folder: Path) -> dict[str, float]:
    """So many desktops, each with a process that does one step after the other: when all are up, memory, steps per second."""
    with ExitStack() as stack:
        began = time.perf_counter()
        with ThreadPoolExecutor(number) as booting:
            vms = list(booting.map(lambda n: stack.enter_context(unpooled_vm(provider, f"bench-{n}")), range(number)))
        all_up = time.perf_counter() - began
        memory = sum(process.memory_full_info().pss for process in psutil.Process().children(recursive=True))
        context = multiprocessing.get_context("fork")
        counts = context.SimpleQueue()
        actors = [context.Process(target=act, args=(vm, folder / vm.vm_id, seconds, counts)) for vm in vms]
        for actor in actors:
            actor.start()
        for actor in actors:
            actor.join()
        rate = sum(counts.get() for _ in actors)
    return {
        "all_up_seconds": all_up,
        "steps_per_second": rate,
        "mb_per_desktop": memory / number / 1e6,
    }


def act(vm: UnpooledVM, folder: Path, seconds: float, counts: multiprocessing.SimpleQueue[float]) -> None:
    """Does one step after the other, as a worker's child would; says how many a second."""
    folder.mkdir(parents=True)
    with desktop_on(vm, folder, a11y=False) as desktop:
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            desktop.act(f"pyautogui.moveTo({100 + done % 50}, 200)", 0)
            done += 1
        counts.put(done / (time.perf_counter() - began))


def measure(name: str, options: dict[str, Any], repeats: int, numbers: list[int], progress: Progress) -> dict[str, Any]:
    """Everything about one provider."""
    provider = load_provider(name, options)
    samples: Samples = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        progress(f"{name}: starting and stopping")
        starts(provider, samples, repeats)
        progress(f"{name}: acting on one desktop")
        life(provider, samples, repeats, folder)
        if options.get("profile") in {"office", "full"}:
            progress(f"{name}: the tree of LibreOffice Calc")
            (folder / "calc").mkdir()
            calc_tree(provider, samples, repeats, folder / "calc")
        several = {}
        for number in numbers:
            progress(f"{name}: {number} desktops at a time")
            several[number] = many(provider, number, 10.0, folder / f"many-{number}")
    return {"seconds": {what: _quantiles(taken) for what, taken in samples.items()}, "several": several}


def _quantiles(taken: list[float]) -> dict[str, float]:
    taken = sorted(taken)
    return {"p50": statistics.median(taken), "p99": taken[min(len(taken) - 1, int(0.99 * len(taken)))], "n": len(taken)}


def show(figures: dict[str, Any]) -> None:
    """Prints the tables."""
    console = Console(highlight=False)
    table = Table("provider", "", title=f"seconds; {os.cpu_count()} cores")
    for column in ("p50", "p99", "n"):
        table.add_column(column, justify="right")
    for provider, provider_figures in figures.items():
        for what, seconds in provider_figures["seconds"].items():
            table.add_row(provider, what, f"{seconds['p50']:.3f}", f"{seconds['p99']:.3f}", f"{seconds['n']:.0f}")
    console.print(table)
    table = Table("provider", "desktops", title="at a time")
    for column in ("all up (s)", "steps/s", "MB a desktop"):
        table.add_column(column, justify="right")
    for provider, provider_figures in figures.items():
        for number, several in provider_figures["several"].items():
            row = (several["all_up_seconds"], several["steps_per_second"], several["mb_per_desktop"])
            table.add_row(provider, str(number), *(f"{value:.1f}" for value in row))
    console.print(table)


def main(
    provider: Annotated[list[str] | None, typer.Option(help="Repeatable; default: local.")] = None,
    profile: Annotated[str, typer.Option(help="The guest image; office or full for LibreOffice.")] = "core",
    repeats: Annotated[int, typer.Option(help="Of each measurement.", min=1)] = 10,
    desktops: Annotated[
        list[int] | None, typer.Option(help="How many at a time; repeatable; default: 1, 4, 12; qemu: 1, 2, 4.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures real desktops on this machine."""
    progress = Progress(Console(stderr=True))
    figures = {
        name: measure(name, {"profile": profile}, repeats, desktops or AT_A_TIME.get(name, AT_A_TIME_ELSE), progress)
        for name in provider or ["local"]
    }
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)


if __name__ == "__main__":
    typer.run(main)
