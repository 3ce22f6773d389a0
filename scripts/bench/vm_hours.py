"""Rollouts per VM-hour: the pipeline on real desktops beside a plain loop over `DesktopEnv` with OSWorld's own fixed sleeps.

Both do the same tasks by the same actions; the pipeline asks the scripted model for them over HTTP. The loop has one VM, booted
once and reverted for each task, waits a minute before the first action and 20 s before evaluating, as OSWorld's runner does. Also
says what the pipeline's VMs did with their time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmark.items import Item, load_items
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import ToolCall
from rollout_tasks.environments.osworld.action_spaces import computer_13
from rollout_tasks.environments.osworld.action_spaces.base import View
from rollout_tasks.environments.osworld.task import task_config
from rollout_tasks.models.scripted.scripts import Scripts, load_scripts
from scripts.bench.services import REPOSITORY
from vm_pool.gate_relay import relayed
from vm_pool.providers import load_provider
from vm_pool.unpooled import unpooled_vm

TREE = REPOSITORY / "examples" / "desktop"
SLEEP_BEFORE, SLEEP_AFTER = 60.0, 20.0
"""Seconds; OSWorld's runner has them in its loop."""


def tasks_of(tree: Path, most: int) -> tuple[Item, ...]:
    """Lays out a tree of the first example tasks; returns them."""
    chosen: dict[str, list[str]] = {}
    for item in load_items(TREE).items[:most]:
        chosen.setdefault(item.domain or "", []).append(item.id)
    tree.mkdir()
    (tree / "examples").symlink_to(TREE / "examples")
    (tree / "test_all.json").write_text(json.dumps(chosen))
    return load_items(tree).items


def pipeline(tree: Path, folder: Path, num_vms: int, num_rollouts: int, profile: str) -> dict[str, Any]:
    """An embedded run over the tasks; what its VMs did from the first grant to the last release."""
    command = [sys.executable, "scripts/submit.py", "--embedded", "--data-path", tree, "--env-mode", "osworld"]
    command += ["--provider", "local", "--num-vms", num_vms, "--num-rollouts", num_rollouts, "--output-dir", folder]
    command += ["--provider-option", f"profile={profile}", "--run-id", "bench"]
    subprocess.run([str(word) for word in command], cwd=REPOSITORY, check=True, stdout=sys.stderr)
    results = [json.loads(path.read_text()) for path in (folder / "bench").glob("*/*/result.json")]
    leases = [result["lease"] for result in results if result.get("lease")]
    stages: Counter[str] = Counter()
    for result in results:
        stages.update(result.get("stages", {}))
    return {
        "rollouts": len(results),
        "scores": dict(Counter(str(result.get("score")) for result in results)),
        **vm_time(leases, num_vms, stages),
    }


def vm_time(leases: list[dict[str, Any]], num_vms: int, stages: Mapping[str, float]) -> dict[str, float]:
    """Returns what VMs did from the first grant to the last release, as shares.

    Held by rollouts, and of that in which stage; between two holders (reset, and handed on); idle.
    """
    began = min(lease["allocated"] for lease in leases)
    ended = max(lease["released"] for lease in leases)
    whole = num_vms * (ended - began)
    held = sum(lease["released"] - lease["allocated"] for lease in leases)
    between = 0.0
    for vm_id in {lease["vm_id"] for lease in leases}:
        of_vm = sorted((each["allocated"], each["released"]) for each in leases if each["vm_id"] == vm_id)
        between += sum(after[0] - before[1] for before, after in pairwise(of_vm))
    return {
        "seconds": ended - began,
        "held": held / whole,
        **{f"held: {stage}": seconds / whole for stage, seconds in stages.items()},
        "between_holders": between / whole,
        "idle": 1 - (held + between) / whole,
        "rollouts_per_vm_hour": len(leases) / (whole / 3600),
    }


def plain_loop(items: tuple[Item, ...], profile: str, folder: Path) -> dict[str, Any]:
    """One VM, one task after the other, sleeping as OSWorld's runner does."""
    # Here, because it imports desktop-env, which takes seconds.
    from rollout_tasks.environments.osworld.attached_desktop import Desktop

    config = RunConfig(env_mode="osworld")
    scripts = load_scripts(items)
    scores = []
    provider = load_provider("local", {"profile": profile})
    began = time.monotonic()
    with unpooled_vm(provider, f"plain-{os.getpid()}") as vm, relayed(vm.endpoint) as there:
        for number, item in enumerate(items):
            if number:
                provider.reset(vm.vm_id)
                provider.check(vm.vm_id)
            here = folder / item.id
            here.mkdir(parents=True)
            desktop = Desktop(there.address, there.ports, config.desktop, here)
            try:
                desktop.set_up(task_config(item))
                time.sleep(SLEEP_BEFORE)
                for action in _actions(scripts, item, config):
                    desktop.act(action, config.desktop.sleep_after_execution)
                time.sleep(SLEEP_AFTER)
                scores.append(float(desktop.score()))
            finally:
                desktop.close()
    seconds = time.monotonic() - began
    return {
        "rollouts": len(items),
        "scores": scores,
        "seconds": seconds,
        "rollouts_per_vm_hour": len(items) / seconds * 3600,
    }


def _actions(scripts: Scripts, item: Item, config: RunConfig) -> Iterator[Any]:
    view = View((config.desktop.screen_width, config.desktop.screen_height))
    for turn in scripts.find(item.id) or ():
        for call in turn.tool_calls:
            action = computer_13.plan(ToolCall("", call.name, call.arguments), view).action
            if action is not None:
                yield action


def main(
    num_vms: Annotated[int, typer.Option(help="M, of the pipeline.", min=1)] = 2,
    num_rollouts: Annotated[int, typer.Option(help="N, of the pipeline.", min=1)] = 4,
    tasks: Annotated[
        int, typer.Option(help="How many of the example tasks; each takes the plain loop a minute and a half.", min=1)
    ] = 13,
    profile: Annotated[str, typer.Option(help="The guest image.")] = "core",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures rollouts per VM-hour beside a plain loop over DesktopEnv."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        items = tasks_of(Path(scratch) / "tree", tasks)
        figures = {
            "pipeline": pipeline(Path(scratch) / "tree", Path(scratch) / "results", num_vms, num_rollouts, profile),
            "plain loop": plain_loop(items, profile, Path(scratch) / "plain"),
        }
    ratio = figures["pipeline"]["rollouts_per_vm_hour"] / figures["plain loop"]["rollouts_per_vm_hour"]
    if as_json:
        print(json.dumps({**figures, "ratio": ratio}, indent=2))
        return
    console = Console(highlight=False)
    table = Table("", "figure")
    table.add_column("value", justify="right")
    for name, method_figures in figures.items():
        for figure, value in method_figures.items():
            shown = f"{value:,.2f}" if isinstance(value, float) else str(value)
            table.add_row(name, figure.replace("_", " "), shown)
    console.print(table)
    console.print(f"pipeline over plain loop: {ratio:.1f}")


if __name__ == "__main__":
    typer.run(main)
