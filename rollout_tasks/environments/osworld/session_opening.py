"""Opens an attempt's session on its desktop: in a cell, or in this process if its user trusts the tasks."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rollout_tasks.cells.filesystem import CellsUnavailable, cell_filesystem
from rollout_tasks.cells.isolation import CellLimits
from rollout_tasks.cells.template_process import shared_template
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import VMAccess
from rollout_tasks.environments.osworld.cell_session import CellSession
from rollout_tasks.environments.osworld.vm_requests import wants_proxy
from rollout_tasks.settings import settings

if TYPE_CHECKING:
    from rollout_tasks.environments.osworld.attempt_files import WorkerFiles
    from rollout_tasks.environments.osworld.session_results import DesktopSession

logger = logging.getLogger(__name__)

CELL_MODULE = "rollout_tasks.environments.osworld.cell_service"
_SESSION_MODULE = "rollout_tasks.environments.osworld.session"
_CPU_OF_TIME = 6
"""Processor time of a cell's process for one `--task-timeout`: setup, agent and evaluation take three, and threads add up."""
TRUST = "or trust the tasks: --trust-tasks runs their setup and evaluation in the worker's own process"


def check_cells() -> None:
    """Checks that tasks' code can be isolated from the worker, or need not be.

    Raises:
        RuntimeError: It must be isolated and cannot be; the message says what to do.
    """
    if settings().trust_tasks:
        return
    try:
        cell_filesystem()
    except CellsUnavailable as error:
        raise RuntimeError(f"tasks' code cannot be kept apart from the worker: {error}; {TRUST}") from error


def preload() -> None:
    """Imports desktop-env where sessions will run; where that is another process, begins to. Logs which it is."""
    if settings().trust_tasks:
        logger.warning("setup and evaluation of desktop tasks run in the worker's own process: you trust the tasks")
        importlib.import_module(_SESSION_MODULE)
    else:
        logger.info("setup and evaluation of desktop tasks run in cells")
        shared_template(CELL_MODULE)


def wait_until_imported() -> None:
    """Waits until desktop-env is imported where sessions will run.

    Raises:
        CellsUnavailable: It cannot be, or not in time.
    """
    if not settings().trust_tasks:
        shared_template(CELL_MODULE).wait_until_ready()


def limits_of_cell(config: RunConfig) -> CellLimits:
    """Returns what a run's cells may use: enough processor time for attempts that may take long."""
    limits = CellLimits()
    return replace(limits, cpu_seconds=max(limits.cpu_seconds, math.ceil(_CPU_OF_TIME * config.limits.max_seconds)))


def open_session(vm: VMAccess, config: RunConfig, task: Mapping[str, Any], files: WorkerFiles) -> DesktopSession:
    """Returns a session that has touched nothing yet.

    Args:
        vm: The attempt's VM.
        config: The run's options.
        task: As `task_config` makes it.
        files: The attempt's files.

    Raises:
        RuntimeError: The VM has nothing to connect to, or no cell can be made.
    """
    if not vm.endpoint.ports.get("control"):
        raise RuntimeError(f"{vm.vm_id} is not a desktop: VMs of its provider have nothing to connect to")
    proxy = wants_proxy(task)
    if settings().trust_tasks:
        # Here, because it imports desktop-env, which otherwise only cells need.
        from rollout_tasks.environments.osworld.session import AttachedSession

        return AttachedSession(config.desktop, vm.endpoint, task, files, proxy=proxy, keep_log=config.save_results)
    return CellSession(
        shared_template(CELL_MODULE),
        config.desktop,
        vm,
        task,
        files,
        proxy=proxy,
        keep_log=config.save_results,
        limits=limits_of_cell(config),
    )
