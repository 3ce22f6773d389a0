"""What a fleet of VMs could do at best, and what it did: items, ideal schedules, figures. Knows no Redis and no clock.

Times are in units of the mean episode. Three yardsticks for a makespan:

- `list_schedule`: the VMs take the items in order, each the next one as soon as it is reset, as if every item had a worker
  of its own. It has the same items in the same order, hence the same long ones at the end, so a ratio to it tells what
  few workers and the pool cost, and not how unlucky the last items were. This is the yardstick to aim at.
- `fleet_schedule`: the same fleet with the same number of workers and a pool that takes no time: what the pool costs alone.
- `lower_bound`: what no schedule of any kind can beat. Heavy tails keep every schedule well above it in short runs.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

RESET = 0.05
"""How long a reset takes."""
WITHOUT_VM = 0.1
"""The share of an episode in which it needs no VM, half of it before and half after."""
SIGMA = 1.0
"""Of the logarithm of the episodes' lengths."""
LONGEST = 5.0
"""Longer episodes run into their time limit."""
SPREAD = 0.25
"""Workers that find every VM taken start one after the other, as many as there are VMs in this time. That is sooner than
VMs come back, and no stampede of thousands."""


@dataclass(frozen=True, slots=True)
class Item:
    """One episode."""

    before: float
    use: float
    """With the VM."""
    after: float

    @property
    def total(self) -> float:
        """From begin to end if nothing has to be waited for."""
        return self.before + self.use + self.after


@dataclass(frozen=True, slots=True)
class Visit:
    """One item as it went."""

    item: Item
    first: bool
    """Whether it was its worker's first."""
    requested_at: float
    granted: float


@dataclass(frozen=True, slots=True)
class Figures:
    """How a fleet did. Shares are of VMs x time, ratios are of makespans."""

    held: float
    """Share in which a VM was held, over the whole makespan."""
    busy: float
    """Share in which it was held or in reset, over the whole makespan."""
    held_until_last_grant: float
    """The same while there was still something to start: in a long run, all the time."""
    busy_until_last_grant: float
    delay_p50: float
    """From asking to the grant, without each worker's first time: then nobody has a VM yet."""
    delay_p99: float
    over_list_schedule: float
    over_fleet_schedule: float
    over_lower_bound: float


def draw_items(count: int, seed: int) -> list[Item]:
    """Lognormal episodes, cut at their time limit; their mean is exactly 1."""
    chance = random.Random(seed)
    lengths = [min(chance.lognormvariate(-(SIGMA**2) / 2, SIGMA), LONGEST) for _ in range(count)]
    mean = statistics.fmean(lengths)
    without = WITHOUT_VM / 2
    return [
        Item(without * length, (1 - WITHOUT_VM) * length, without * length) for length in (x / mean for x in lengths)
    ]


def start_of(worker: int, vms: int) -> float:
    """Returns when a worker, counted from 0, takes its first item."""
    return SPREAD * max(0, worker - vms) / vms


def list_schedule(items: Sequence[Item], vms: int) -> float:
    """The makespan when every VM takes the next item as soon as it is clean."""
    clean_at = [0.0] * vms
    makespan = 0.0
    for item in items:
        end = max(clean_at[0], item.before) + item.use
        heapq.heapreplace(clean_at, end + RESET)
        makespan = max(makespan, end + item.after)
    return makespan


def fleet_schedule(items: Sequence[Item], workers: int, vms: int) -> float:
    """The makespan when workers take items in order, VMs go to whoever asked first, and neither takes any time."""
    waiting: deque[Item] = deque()
    left = deque(items)
    free = vms
    events: list[tuple[float, int, str, Item | None]] = [
        (start_of(n, vms), n, "worker free", None) for n in range(workers)
    ]
    count = workers

    def at(time: float, what: str, item: Item | None = None) -> None:
        nonlocal count
        count += 1
        heapq.heappush(events, (time, count, what, item))

    makespan = 0.0
    while events:
        now, _, what, item = heapq.heappop(events)
        if what == "worker free":
            makespan = max(makespan, now)
            if left:
                at(now + left[0].before, "asks", left.popleft())
        elif what == "asks" and item is not None:
            waiting.append(item)
        else:
            free += 1
        while free and waiting:
            item, free = waiting.popleft(), free - 1
            at(now + item.use + RESET, "VM clean")
            at(now + item.use + item.after, "worker free")
    return makespan


def lower_bound(items: Sequence[Item], workers: int, vms: int) -> float:
    """The VMs' work, with a reset between any two uses, the workers' work, and the longest item: whatever is longest."""
    resets = RESET * max(0, len(items) - vms)
    return max(
        (math.fsum(item.use for item in items) + resets) / vms,
        math.fsum(item.total for item in items) / workers,
        max(item.total for item in items),
    )


def share_of_time(spans: Sequence[tuple[float, float]], until: float, vms: int) -> float:
    """Returns how much of the VMs' time from 0 to `until` the spans (begin, end) cover."""
    return math.fsum(max(0.0, min(end, until) - begin) for begin, end in spans) / (vms * until)


def figures(visits: Sequence[Visit], makespan: float, items: Sequence[Item], workers: int, vms: int) -> Figures:
    """Returns the figures of a fleet's visits.

    Args:
        visits: Every item once.
        makespan: From the start to the end of the last item.
        items: In the order in which the workers took them.
        workers: How many there were.
        vms: How many there were.
    """
    held = [(visit.granted, visit.granted + visit.item.use) for visit in visits]
    busy = [(begin, end + RESET) for begin, end in held]
    last_grant = max(visit.granted for visit in visits)
    delays = [visit.granted - visit.requested_at for visit in visits if not visit.first]
    percentiles = statistics.quantiles(delays, n=100, method="inclusive")
    return Figures(
        held=share_of_time(held, makespan, vms),
        busy=share_of_time(busy, makespan, vms),
        held_until_last_grant=share_of_time(held, last_grant, vms),
        busy_until_last_grant=share_of_time(busy, last_grant, vms),
        delay_p50=percentiles[49],
        delay_p99=percentiles[98],
        over_list_schedule=makespan / list_schedule(items, vms),
        over_fleet_schedule=makespan / fleet_schedule(items, workers, vms),
        over_lower_bound=makespan / lower_bound(items, workers, vms),
    )
