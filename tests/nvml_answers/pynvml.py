"""Stands where nvidia-ml-py has its module, and gives recorded answers: those of the file that NVML_ANSWERS names.

Each device has ``name``, ``uuid``, bytes ``total`` and ``used``, and ``compute`` and ``graphics``: processes with ``pid`` and
``usedGpuMemory``. As a driver does, it forgets a process that has ended, and gives its bytes back, unless it ``stays``.
``init`` or a device's ``error`` name an error that is raised.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

nvmlMemory_v2 = 0x02000028  # noqa: N816


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801
    def __str__(self) -> str:
        return "NVML Shared Library Not Found"


class NVMLError_DriverNotLoaded(NVMLError):  # noqa: N801
    def __str__(self) -> str:
        return "Driver Not Loaded"


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    def __str__(self) -> str:
        return "Not Supported"


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801
    def __str__(self) -> str:
        return "GPU is lost"


class NVMLError_Unknown(NVMLError):  # noqa: N801
    def __str__(self) -> str:
        return "Unknown Error"


def _answers() -> Any:
    return json.loads(Path(os.environ["NVML_ANSWERS"]).read_text(encoding="utf-8"))


def _raise(error: str | None) -> None:
    if error:
        raise globals()[f"NVMLError_{error}"]


def nvmlInit() -> None:  # noqa: N802
    _raise(_answers().get("init"))


def nvmlShutdown() -> None:  # noqa: N802
    pass


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return len(_answers()["devices"])


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    return index


def nvmlDeviceGetName(handle: int) -> str:  # noqa: N802
    return str(_answers()["devices"][handle]["name"])


def nvmlDeviceGetUUID(handle: int) -> str:  # noqa: N802
    return str(_answers()["devices"][handle]["uuid"])


def nvmlDeviceGetMemoryInfo(handle: int, version: int | None = None) -> SimpleNamespace:  # noqa: N802
    assert version == nvmlMemory_v2, "the other one counts what the driver keeps for itself"
    device = _answers()["devices"][handle]
    _raise(device.get("error"))
    freed = sum(one["usedGpuMemory"] or 0 for one in device["compute"] if _forgotten(one))
    return SimpleNamespace(total=device["total"], used=device["used"] - freed)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:  # noqa: N802
    return _processes(handle, "compute")


def nvmlDeviceGetGraphicsRunningProcesses(handle: int) -> list[SimpleNamespace]:  # noqa: N802
    if "graphics" not in _answers()["devices"][handle]:
        raise NVMLError_NotSupported
    return _processes(handle, "graphics")


def _processes(handle: int, kind: str) -> list[SimpleNamespace]:
    found = [one for one in _answers()["devices"][handle][kind] if not _forgotten(one)]
    return [SimpleNamespace(pid=one["pid"], usedGpuMemory=one["usedGpuMemory"]) for one in found]


def _forgotten(process: dict[str, Any]) -> bool:
    if process.get("stays"):
        return False
    try:
        stat = Path(f"/proc/{process['pid']}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"
