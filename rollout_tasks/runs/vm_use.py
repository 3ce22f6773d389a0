"""How many VMs a run used at each time, from its events.jsonl. Writes nothing."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.trajectories.plain_files import check_plain

_MOST_BYTES = 1 << 30
_LONGEST_LINE = 1 << 16
_CHANGES = {"allocate": 1, "release": -1, "worker_exit": -1}


@dataclass(frozen=True, slots=True)
class VMUse:
    """The VMs of a run over time."""

    vms: int
    """Different ones that it used."""
    moments: array[float]
    """When the number of VMs in use changed, in seconds since the first."""
    in_use: array[int]
    """How many were in use from then on; one for each moment."""
    share: float
    """Share of the time, from the first moment to the last, that those VMs were in use, on average."""


def vm_use(folder: RunFolder) -> VMUse | None:
    """Returns how many VMs were in use when; None if the run has no events of VMs.

    Args:
        folder: The run.

    Raises:
        UserError: The events cannot be read, or are not events.
    """
    changes: list[tuple[float, int, str]] = []
    try:
        check_plain(folder.path, folder.events, _MOST_BYTES)
        changes.extend(_changes(folder))
    except FileNotFoundError:
        return None
    changes.sort(key=lambda one: (one[0], -one[1]))  # at one moment, who comes before who goes
    held: Counter[str] = Counter()
    vms = {vm for _, _, vm in changes}
    moments, in_use = array("d"), array("q")
    busy_seconds, before, busy = 0.0, 0.0, 0
    for when, change, vm in changes:
        moment = when - changes[0][0]
        busy_seconds += busy * (moment - before)
        busy += _turned(held, vm, change)
        before = moment
        if moments and moments[-1] == moment:
            in_use[-1] = busy
        else:
            moments.append(moment)
            in_use.append(busy)
    if not moments or not moments[-1]:
        return None
    return VMUse(len(vms), moments, in_use, busy_seconds / (len(vms) * moments[-1]))


def _turned(held: Counter[str], vm: str, change: int) -> int:
    """Notes that a VM got or lost a holder; returns 1 if it is in use now and was not, -1 if it was and is not, else 0."""
    was_held = held[vm] > 0
    held[vm] = max(0, held[vm] + change)
    return int(held[vm] > 0) - int(was_held)


def _changes(folder: RunFolder) -> Iterator[tuple[float, int, str]]:
    path, number = folder.events, 0
    try:
        with path.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                number += 1
                event = json.loads(line)
                when, vm, change = event["timestamp"], event["instance_id"], _CHANGES[event["action"]]
                if type(when) not in {int, float} or not math.isfinite(when) or type(vm) is not str:
                    raise TypeError
                yield float(when), change, vm
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UserError(f"{path}, line {number}: is not an event of a run") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
