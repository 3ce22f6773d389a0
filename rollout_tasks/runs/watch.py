"""Shows a run's progress, speed, failures and VMs until it is over. Read-only; the run needs no watcher."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import redis
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmark.money import dollars
from rollout_tasks.errors import UserError
from rollout_tasks.runs.progress import progress_of
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.waits import pool_state, pool_status, waits_for
from vm_pool.states import VMState

_LOOK_SECONDS = 0.5
_LINE_SECONDS = 10.0
"""How often a line is printed when the output is not a terminal."""
_RATE_SECONDS = 120.0
"""The rate is measured over the last two minutes."""
_AWAY_SECONDS = 600.0
"""How long to wait for a Redis that does not answer."""
_WORKERS_START_SECONDS = 20.0
"""How long workers may take to start before their absence is shown."""
_BAR_WIDTH = 40
_VM_STATES = frozenset(state.value for state in VMState)
OVER = frozenset({"done", "cancelled"})
ENDS = OVER | {"half_submitted"}
"""States that a run does not leave by itself."""


@dataclass(slots=True)
class Rate:
    """Measures the recent verdicts per second."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, committed: int) -> None:
        """Records how many verdicts there are now."""
        now = time.monotonic()
        self.seen.append((now, committed))
        while len(self.seen) > 2 and now - self.seen[0][0] > _RATE_SECONDS:
            self.seen.popleft()

    @property
    def per_second(self) -> float:
        """Recent verdicts per second; 0 until there are two measurements."""
        if len(self.seen) < 2:
            return 0.0
        (began, before), (now, after) = self.seen[0], self.seen[-1]
        return (after - before) / (now - began) if now > began else 0.0


def describe(progress: Progress, rate: Rate | None = None, vms: dict[str, int] | None = None) -> dict[str, Any]:
    """Returns a run's progress as JSON types."""
    values = asdict(progress)
    if rate is not None:
        values["rollouts_per_second"] = round(rate.per_second, 3)
        values["eta_seconds"] = round(progress.pending / rate.per_second, 1) if rate.per_second else None
    if vms is not None:
        values["vms"] = vms
    return values


def watch(
    store: RunStore,
    run_id: str,
    console: Console,
    *,
    pool: str | None,
    alive: Callable[[], None] | None = None,
    until: Callable[[Progress], bool] | None = None,
    own_worker: bool = False,
) -> Progress:
    """Shows a run until it is over or half-submitted.

    Args:
        store: The run's store.
        run_id: The run.
        console: Where to show it: a live display on a terminal that can draw, else a line now and then.
        pool: The pool whose VMs to show, if the run uses one.
        alive: Called at each check; raises when watching on makes no sense.
        until: Stops watching when it returns True.
        own_worker: Whether the run's worker and VMs were started for it just now; `alive` checks them.

    Returns:
        The last progress seen.

    Raises:
        UserError: Redis lost the run, or has not answered for ten minutes.
    """
    rate = Rate()
    last_line = 0.0
    began = time.monotonic()
    answered, away = began, False
    draws = console.is_terminal and not console.is_dumb_terminal
    with Live(console=console, refresh_per_second=4, transient=True) if draws else _NoLive() as live:
        while True:
            patient = not own_worker and time.monotonic() - began < _WORKERS_START_SECONDS
            try:
                progress = progress_of(store, run_id)
                status = pool_status(store.client, pool) if pool else None
                vms = pool_state(status)
                idle = waits_for(store, progress, status, own_worker=own_worker, patient=patient)
                if pool and not idle and not patient:
                    idle = _first_vm(progress, vms, own_host=own_worker)
            except redis.RedisError as error:
                if alive is not None:
                    alive()
                if time.monotonic() - answered > _AWAY_SECONDS:
                    raise UserError(_away_for_good(run_id, error)) from error
                if not away:
                    console.print(f"Redis does not answer; still trying: {error}", highlight=False, soft_wrap=True)
                away = True
                time.sleep(_LOOK_SECONDS)
                continue
            answered, away = time.monotonic(), False
            rate.add(progress.committed)
            if progress.state in ENDS or (until is not None and until(progress)):
                return progress
            if alive is not None:
                alive()
            if draws:
                live.update(_picture(progress, rate, vms, idle))
            elif time.monotonic() - last_line > _LINE_SECONDS:
                last_line = time.monotonic()
                console.print(line(progress, rate, vms, idle), highlight=False, soft_wrap=True)
            time.sleep(_LOOK_SECONDS)


def _away_for_good(run_id: str, error: Exception) -> str:
    return (
        f"Redis has not answered for {_AWAY_SECONDS:.0f} s ({error}); the run goes on once it is back:"
        f" see rollouts watch {run_id}"
    )


class _NoLive:
    """Replaces `Live` when there is no terminal."""

    def __enter__(self) -> _NoLive:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def update(self, _picture: RenderableType) -> None:
        """Shows nothing."""


def _first_vm(progress: Progress, vms: dict[str, int], *, own_host: bool) -> str:
    """Returns a sentence if no VM of the run's pool has ever been ready; else empty.

    Args:
        progress: The run's progress.
        vms: How many VMs of the pool are in each state.
        own_host: Whether the pool's host was started for the run.
    """
    if not progress.pending:
        return ""
    states = {state for state, count in vms.items() if count and state in _VM_STATES}
    if not states and own_host:
        return "the host of its VMs is starting"
    return "the first VM is booting" if states == {VMState.INITIALIZING.value} else ""


def line(progress: Progress, rate: Rate, vms: dict[str, int], idle: str = "") -> str:
    """Returns the progress as one line of text."""
    parts = [f"{progress.state}: {progress.committed}/{progress.total} rollouts", f"{progress.running} running"]
    if rate.per_second and not _stands(progress, idle):
        parts.append(f"{rate.per_second:.1f}/s, about {_duration(progress.pending / rate.per_second)} left")
    if progress.cost is not None:
        parts.append(dollars(progress.cost))
    parts += [f"{name}: {count}" for name, count in progress.failures.items()]
    if vms:
        parts.append("VMs " + ", ".join(f"{count} {state}" for state, count in vms.items() if count))
    if idle:
        parts.append(idle)
    return " · ".join(parts)


def _stands(progress: Progress, idle: str) -> bool:
    """Whether nothing goes on, so that the speed of the last minutes says nothing about the time left."""
    return bool(idle) and not progress.running


def _picture(progress: Progress, rate: Rate, vms: dict[str, int], idle: str) -> Group:
    table = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=max(progress.total, 1), completed=progress.committed, width=_BAR_WIDTH)
    table.add_row("rollouts", bar, f"{progress.committed} of {progress.total}")
    goes_on = rate.per_second and not _stands(progress, idle)
    speed = f"{rate.per_second:.2f}/s" if goes_on else "-"
    left = _duration(progress.pending / rate.per_second) if goes_on else "-"
    table.add_row("now", f"{progress.running} running", f"{speed}, {left} left")
    if progress.cost is not None:
        table.add_row("cost", dollars(progress.cost), "")
    if progress.failures:
        table.add_row("failed", ", ".join(f"{name} {count}" for name, count in progress.failures.items()), "")
    if vms:
        table.add_row("VMs", ", ".join(f"{count} {state}" for state, count in vms.items() if count), "")
    if idle:
        table.add_row("waiting", idle, "")
    return Group(Text(f"Run {progress.run_id}: {progress.state}", style="bold"), table)


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"
