"""Runs a VM host beside the worker (``--num-vms``): its own process, restarted if it dies, ended with the worker."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import redis
from celery import bootsteps

from rollout_tasks.errors import WRONG_INPUT, UserError
from rollout_tasks.key_values import key_values
from rollout_tasks.restarted_process import RestartedProcess
from vm_pool.errors import PoolError
from vm_pool.pool import VMPool

logger = logging.getLogger(__name__)

_VM_HOST_STOP_SECONDS = 60


class HostedVMs(bootsteps.StartStopStep):  # type: ignore[misc]
    """The boot step that runs the VM host, in its own process: restarted if it dies, ended with the worker."""

    requires = ("celery.worker.components:Pool",)

    def __init__(
        self,
        worker: Any,
        num_vms: int | None = None,
        provider: str | None = None,
        provider_option: tuple[str, ...] = (),
        vm_pool: str | None = None,
        vm_address: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(worker, **options)
        self.enabled = bool(num_vms)
        if self.enabled:
            _check_vms(provider or "simulated", provider_option, vm_pool or "default")
        self.command = [
            sys.executable,
            *("-P", "-m", "rollout_tasks.cli.vm_host"),  # the current folder is the user's
            f"--num-vms={num_vms}",
            f"--provider={provider or 'simulated'}",
            f"--pool={vm_pool or 'default'}",
            f"--address={vm_address or '127.0.0.1'}",
            f"--host-id={_host_id(worker.hostname)}",
            f"--exit-with-parent={os.getpid()}",
            *(f"--option={option}" for option in provider_option),
        ]
        self.host: RestartedProcess | None = None

    def include_if(self, _worker: Any) -> bool:
        """Returns whether --num-vms was given."""
        return self.enabled

    def start(self, _worker: Any) -> None:
        """Starts the VM host."""
        self.host = RestartedProcess("the VM host", self._launch)

    def _launch(self) -> subprocess.Popen[bytes]:
        # Its own process group: Ctrl-C at the worker's terminal must not stop VMs that running rollouts still use.
        return subprocess.Popen(self.command, process_group=0)  # noqa: S603

    def stop(self, worker: Any) -> None:
        """Ends the VM host once no rollout of this worker uses its VMs, and waits until the VMs are stopped."""
        if worker.pool is not None:
            worker.pool.stop()  # started first, it would be stopped last; stopping it twice changes nothing
        self.terminate(worker)

    def terminate(self, _worker: Any) -> None:
        """Ends the VM host and waits until its VMs are stopped."""
        if self.host is None:
            return
        process = self.host.stop_restarting()
        if process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_VM_HOST_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            logger.error("the VM host did not stop its VMs within %d s; killing it", _VM_HOST_STOP_SECONDS)
            process.kill()


def _check_vms(provider: str, options: Iterable[str], pool: str) -> None:
    """Ends the worker with a message if no VM host could ever start."""
    from rollout_tasks.vm_options import open_provider  # here, because few workers host VMs

    try:
        open_provider(provider, key_values("--provider-option", list(options)))
        VMPool(redis.Redis(), pool)
    except (UserError, PoolError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(WRONG_INPUT) from error


def _host_id(worker: str) -> str:
    """Returns the VM host's name: the machine's, and the worker's own if any, as two hosts may not share a name."""
    name, _, machine = worker.partition("@")
    host = machine if name == "celery" else f"{name}.{machine}"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", host)[:100]
