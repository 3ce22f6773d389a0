"""What NVIDIA's driver says of the GPUs' memory and of the processes that have some of it. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rollout_tasks.errors import UserError

_MIB = 20
"""Bits of a byte count that are left out of one in MiB."""


@dataclass(frozen=True, slots=True)
class GPUMemory:
    """A GPU's memory at one moment, in MiB."""

    index: int
    """As `nvidia-smi` counts."""
    name: str
    uuid: str
    total: int = 0
    used: int = 0
    """Without what the driver keeps for itself."""
    processes: Mapping[int, int | None] = field(default_factory=dict)
    """What each process has, by its id; None where the driver does not say how much."""
    problem: str = ""
    """Why the driver does not tell the memory or the processes, for a GPU that is lost, for one."""


class Nvml:
    """The driver's library, while it is open."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def gpus(self) -> list[GPUMemory]:
        """Returns all GPUs of this machine.

        Raises:
            UserError: There is none, or the driver does not say which there are.
        """
        try:
            count = self._library.nvmlDeviceGetCount()
        except self._library.NVMLError as error:
            raise UserError(f"NVIDIA's driver does not say which GPUs there are: {error}") from error
        if not count:
            raise UserError("NVIDIA's driver shows no GPU here: a container must be given one when it is started")
        return [self._gpu(index) for index in range(count)]

    def _gpu(self, index: int) -> GPUMemory:
        library, name, uuid = self._library, "", ""
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            name, uuid = library.nvmlDeviceGetName(handle), library.nvmlDeviceGetUUID(handle)
            memory = library.nvmlDeviceGetMemoryInfo(handle, version=library.nvmlMemory_v2)
            processes = _merged([*library.nvmlDeviceGetComputeRunningProcesses(handle), *self._graphics(handle)])
        except library.NVMLError as error:
            return GPUMemory(index, name, uuid, problem=str(error))
        return GPUMemory(index, name, uuid, memory.total >> _MIB, memory.used >> _MIB, processes)

    def _graphics(self, handle: Any) -> Iterable[Any]:
        """Returns the processes that draw with a GPU; none for a GPU that cannot draw."""
        ask: Callable[[Any], Iterable[Any]] = self._library.nvmlDeviceGetGraphicsRunningProcesses
        try:
            return ask(handle)
        except self._library.NVMLError_NotSupported:
            return ()


@contextmanager
def open_nvml() -> Iterator[Nvml]:
    """Opens the library for a block.

    Raises:
        UserError: Its Python package, the driver or a GPU is missing, or the driver does not answer.
    """
    try:
        import pynvml  # here, because it is optional
    except ImportError as error:
        raise UserError(
            "NVIDIA's driver is asked through the package nvidia-ml-py: uv pip install nvidia-ml-py"
        ) from error
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded) as error:
        raise UserError(f"this machine has no driver of NVIDIA's, or it is not loaded: {error}") from error
    except pynvml.NVMLError as error:
        raise UserError(f"NVIDIA's driver does not answer: {error}") from error
    try:
        yield Nvml(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _merged(processes: Iterable[Any]) -> dict[int, int | None]:
    """Returns each process once: one that computes and draws is in both lists, with the same memory."""
    found: dict[int, int | None] = {}
    for process in processes:
        memory = None if process.usedGpuMemory is None else process.usedGpuMemory >> _MIB
        before = found.get(process.pid)
        found[process.pid] = memory if before is None else max(before, memory or 0)
    return found
