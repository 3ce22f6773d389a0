"""The GPUs of this machine that have room for a server of a model."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from rollout_tasks.errors import UserError

_ASK_SECONDS = 30.0
_QUERY = ("--query-gpu=index,uuid,memory.free,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True)
class GPU:
    """A GPU, and its memory in MiB."""

    index: int
    uuid: str
    free: int
    total: int


def gpus() -> list[GPU]:
    """Returns the GPUs that this process may use, by `nvidia-smi` and CUDA_VISIBLE_DEVICES; empty where there is none.

    Raises:
        UserError: `nvidia-smi` is there and fails.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        completed_process = subprocess.run(  # noqa: S603
            [program, *_QUERY], capture_output=True, text=True, errors="replace", timeout=_ASK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"nvidia-smi does not say within {_ASK_SECONDS:g} s which GPUs there are") from None
    if completed_process.returncode:
        said = " ".join((completed_process.stderr or completed_process.stdout).split())[:300]
        raise UserError(f"nvidia-smi does not say which GPUs there are: {said}")
    return _visible(read_gpus(completed_process.stdout), os.environ.get("CUDA_VISIBLE_DEVICES"))


def read_gpus(listed: str) -> list[GPU]:
    """Reads what `nvidia-smi` printed: a line of index, UUID, free and total MiB for each GPU.

    Raises:
        UserError: A line has another form.
    """
    found = []
    for line in listed.splitlines():
        try:
            index, uuid, free, total = (word.strip() for word in line.split(","))
            known = free.isdecimal() and total.isdecimal()  # else, as for a lost GPU, there is no room
            found.append(GPU(int(index), uuid, int(free) if known else 0, int(total) if known else 1))
        except ValueError:
            raise UserError(f"nvidia-smi says of a GPU: {line[:100]!r}") from None
    return found


def _visible(found: Sequence[GPU], visible: str | None) -> list[GPU]:
    """Returns the GPUs that CUDA's variable names, by index or by the beginning of a UUID; all where it is not set."""
    if visible is None:
        return list(found)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return [gpu for gpu in found if any(name == str(gpu.index) or gpu.uuid.startswith(name) for name in names)]


def groups_with_room(found: Sequence[GPU], share: float, each: int) -> list[tuple[int, ...]]:
    """Returns the GPUs of each server that there is room for.

    Args:
        found: The machine's GPUs.
        share: Of a GPU's memory, what a server takes.
        each: The GPUs that a server takes.
    """
    free = [gpu.index for gpu in found if gpu.free >= share * gpu.total]
    return [tuple(free[start : start + each]) for start in range(0, len(free) - each + 1, each)]
