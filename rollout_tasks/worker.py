"""What this project adds to a Celery worker: its queues, its VMs, and the timer that looks for lost work."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
import redis
from celery import Celery, bootsteps, signals
from kombu.exceptions import OperationalError

from rollout_tasks import presence
from rollout_tasks import settings as settings_of_process
from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import connect, this_process_works
from rollout_tasks.settings import settings
from rollout_tasks.temporary import use_own_folder
from vm_pool.errors import PoolError

logger = logging.getLogger(__name__)

_RECONCILE_TICK = "reconcile:tick"
_VM_HOST_STOP_SECONDS = 60
_VM_HOST_RESTART_SECONDS = (1.0, 60.0)
"""Pause before a VM host that ended is started again: at first, and at most when it goes on ending soon."""
_EVENTS_WAIT_SECONDS = 0.5
_SHORTEST_PAUSE_SECONDS = 0.05
_MESSAGES_LOOKED_AT = 100


def install(app: Celery) -> None:
    """Adds the worker options and boot steps to an application."""
    app.user_options["worker"].add(
        click.Option(["--num-vms"], type=click.IntRange(min=1), help="Host this many VMs (M) beside the worker.")
    )
    app.user_options["worker"].add(
        click.Option(["--provider"], default=None, help="Where the VMs come from, with --num-vms.")
    )
    app.user_options["worker"].add(
        click.Option(["--provider-option"], multiple=True, metavar="KEY=VALUE", help="For the provider; repeatable.")
    )
    app.user_options["worker"].add(
        click.Option(["--vm-pool"], default="default", help="The VMs' pool, with --num-vms.")
    )
    app.user_options["worker"].add(
        click.Option(
            ["--vm-address"], default="127.0.0.1", help="This machine's address for who borrows VMs, with --num-vms."
        )
    )
    app.user_options["worker"].add(
        click.Option(
            ["--trust-tasks"],
            is_flag=True,
            help="Run the setup and evaluation of desktop tasks in the worker's own process, not in cells: you wrote them.",
        )
    )
    app.steps["worker"].add(Leftovers)
    app.steps["worker"].add(ServedQueues)
    app.steps["worker"].add(SharedImports)
    app.steps["worker"].add(HostedVMs)
    app.steps["consumer"].add(LostWork)
    app.steps["consumer"].add(Presence)
    app.steps["consumer"].add(EventBatches)
    # Every model call is in its rollout's trajectory; a line for each would drown the worker's log.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


class Leftovers(bootsteps.StartStopStep):  # type: ignore[misc]
    """What a killed worker leaves: its children end, its temporary files go when the next starts, a child's with the next child."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        use_own_folder("rollout-worker-")
        signals.worker_process_init.connect(partial(begin_child, os.getpid()), weak=False)


def begin_child(worker: int, **_signal: Any) -> None:
    """Ends a child whose worker is gone already: Celery has the kernel end it with the worker, but only from just before here."""
    if os.getppid() != worker:
        os._exit(1)
    this_process_works()
    use_own_folder("child-")


class ServedQueues(bootsteps.StartStopStep):  # type: ignore[misc]
    """Without -Q, a worker serves the queues of the environments that this machine can run, and finalising."""

    def __init__(self, worker: Any, *, trust_tasks: bool = False, **options: Any) -> None:
        super().__init__(worker, **options)
        if trust_tasks:
            settings_of_process.trust_tasks()
        command = click.get_current_context(silent=True)
        if command is None or command.params.get("queues"):
            return
        from rollout_tasks.registry import served_queues
        from rollout_tasks.tasks import FINALIZE_QUEUE

        worker.app.amqp.queues.select([*served_queues(), FINALIZE_QUEUE])


class SharedImports(bootsteps.StartStopStep):  # type: ignore[misc]
    """Imports before the fork what rollouts use: the pool's processes share it instead of taking half a second each.

    And hides them from the garbage collector: walking all modules again and again costs time, and in a child it copies them.
    """

    requires = (Leftovers, ServedQueues)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        from rollout_tasks import registry, rollout  # noqa: F401

        queues = worker.app.amqp.queues.consume_from
        _announce_start(worker.hostname, queues)
        for name, reason in registry.available_environments().items():
            environment = registry.environment(name) if reason is None else None
            if environment is None or environment.queue not in queues:
                continue
            environment.preload()
            if registry.agent(environment.default_agent).needs_model:
                import openai  # noqa: F401
        gc.collect()
        gc.freeze()


def _announce_start(worker: str, queues: Iterable[str]) -> None:
    """Without Redis, nobody looks."""
    with contextlib.suppress(redis.RedisError, UserError):
        client = connect(tries=0, socket_timeout=2)
        presence.announce_start(client, worker, list(queues))
        client.close()


class HostedVMs(bootsteps.StartStopStep):  # type: ignore[misc]
    """With --num-vms, a VM host runs beside the worker, in a process of its own: started again if it dies, ended with it."""

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
            str(Path(__file__).resolve().parent.parent / "scripts" / "vm_host.py"),
            f"--num-vms={num_vms}",
            f"--provider={provider or 'simulated'}",
            f"--pool={vm_pool or 'default'}",
            f"--address={vm_address or '127.0.0.1'}",
            f"--host-id={_host_id(worker.hostname)}",
            f"--exit-with-parent={os.getpid()}",
            *(f"--option={option}" for option in provider_option),
        ]
        self.process: subprocess.Popen[bytes] | None = None
        self.stopping = threading.Event()

    def include_if(self, _worker: Any) -> bool:
        """Only with --num-vms."""
        return self.enabled

    def start(self, _worker: Any) -> None:
        """Starts the VM host."""
        self._launch()
        threading.Thread(target=self._keep_running, name="vm-host-keeper", daemon=True).start()

    def _launch(self) -> None:
        # A process group of its own: Ctrl-C at the worker's terminal must not stop VMs that running rollouts still use.
        self.process = subprocess.Popen(self.command, process_group=0)  # noqa: S603

    def _keep_running(self) -> None:
        pause, longest = _VM_HOST_RESTART_SECONDS
        while self.process is not None:
            began = time.monotonic()
            code = self.process.wait()
            if time.monotonic() - began > longest:
                pause = _VM_HOST_RESTART_SECONDS[0]
            if self.stopping.is_set():
                return
            logger.error("the VM host ended by itself (exit code %d); starting it again in %.0f s", code, pause)
            if self.stopping.wait(pause):
                return
            pause = min(pause * 2, longest)
            try:
                self._launch()
            except OSError as error:  # no memory or no process left, as there may have been none for the one that ended
                logger.error("the VM host cannot be started: %s", error)

    def stop(self, worker: Any) -> None:
        """Ends the VM host once no rollout of this worker uses its VMs any more, and waits for these to be stopped."""
        if worker.pool is not None:
            worker.pool.stop()  # what started first is stopped last; stopping it twice changes nothing
        self.terminate(worker)

    def terminate(self, _worker: Any) -> None:
        """Ends the VM host and waits for its VMs to be stopped."""
        self.stopping.set()
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(_VM_HOST_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            logger.error("the VM host did not stop its VMs within %d s; killing it", _VM_HOST_STOP_SECONDS)
            self.process.kill()


def _check_vms(provider: str, options: Iterable[str], pool: str) -> None:
    """Ends the worker with a sentence where no VM host could ever start."""
    from rollout_tasks.command_line import WRONG_INPUT, key_values
    from vm_pool.pool import VMPool
    from vm_pool.providers import load_provider

    try:
        load_provider(provider, key_values("--provider-option", list(options)))
        VMPool(redis.Redis(), pool)
    except (UserError, PoolError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(WRONG_INPUT) from error


def _host_id(worker: str) -> str:
    """The VM host's name: the machine's, and the worker's own where it has one, since two hosts may not share a name."""
    name, _, machine = worker.partition("@")
    host = machine if name == "celery" else f"{name}.{machine}"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", host)[:100]


class _Regularly(bootsteps.StartStopStep):  # type: ignore[misc]
    """Does something small again and again, on the worker's own timer, whatever goes wrong with it."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self.timer: Any = None
        self.client: redis.Redis | None = None
        self.failing = False

    def interval(self) -> float:
        """Seconds between two times, at most."""
        raise NotImplementedError

    def act(self, client: redis.Redis, consumer: Any) -> float:
        """Does it once; returns the seconds until the next time."""
        raise NotImplementedError

    def start(self, consumer: Any) -> None:
        """Does it now, and goes on doing it."""
        self.client = connect(tries=0, socket_timeout=2)
        self._try(consumer)

    def stop(self, _consumer: Any) -> None:
        """Stops doing it."""
        client, self.client = self.client, None
        if self.timer is not None:
            self.timer.cancel()
        if client is not None:
            client.close()

    def _try(self, consumer: Any) -> None:
        client, pause = self.client, self.interval()
        if client is None:
            return
        try:
            pause = self.act(client, consumer)
            self._say(None)
        except (redis.RedisError, OperationalError) as error:
            self._say(error)
        except Exception:  # a worker without its timers is deaf and lame, and looks well
            logger.exception("%s failed; it is tried again in %.0f s", type(self).__name__, pause)
        finally:
            if self.client is not None:
                self.timer = consumer.timer.call_after(pause, self._try, (consumer,))

    def _say(self, error: Exception | None) -> None:
        """Says it when Redis begins to fail, and when it has ended."""
        if error is not None and not self.failing:
            logger.warning("%s: Redis does not do it: %s; trying again", type(self).__name__, error)
        elif error is None and self.failing:
            logger.info("%s: Redis does it again", type(self).__name__)
        self.failing = error is not None


class LostWork(_Regularly):
    """Every so often one worker of all asks for lost work to be looked for."""

    def interval(self) -> float:
        """As configured."""
        return settings().reconcile_every

    def act(self, client: redis.Redis, consumer: Any) -> float:  # noqa: ARG002
        """Sends `reconcile`, unless another worker has within the interval: then it is next asked when that one's has passed."""
        from rollout_tasks.tasks import reconcile

        every = self.interval()
        if client.set(_RECONCILE_TICK, os.getpid(), nx=True, px=int(every * 1000)):
            if not _waits_for_a_worker(client, reconcile.name):
                reconcile.apply_async(retry=False)
            return every
        left: Any = client.pttl(_RECONCILE_TICK)
        return float(min(max(left / 1000, _SHORTEST_PAUSE_SECONDS), every))


def _waits_for_a_worker(client: redis.Redis, task: str) -> bool:
    """Whether a message for a task is among the next in the queue of small tasks."""
    from rollout_tasks.tasks import FINALIZE_QUEUE

    documents: Any = client.lrange(FINALIZE_QUEUE, -_MESSAGES_LOOKED_AT, -1)
    return any(json.loads(document)["headers"].get("task") == task for document in documents)


class Presence(_Regularly):
    """Says that the worker is there and which queues it serves."""

    def interval(self) -> float:
        """Well below the time after which others take it to be gone."""
        return presence.ANNOUNCE_SECONDS

    def act(self, client: redis.Redis, consumer: Any) -> float:
        """Announces the worker."""
        presence.announce(client, consumer.hostname, list(consumer.app.amqp.queues.consume_from))
        return self.interval()

    def stop(self, consumer: Any) -> None:
        """Takes the announcement back."""
        if self.client is not None:
            with contextlib.suppress(redis.RedisError):
                presence.leave(self.client, consumer.hostname)
        super().stop(consumer)


class EventBatches(bootsteps.StartStopStep):  # type: ignore[misc]
    """Sends the events that Flower shows in batches: one by one they take half of the main process's time."""

    requires = ("celery.worker.consumer.events:Events",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self.timer: Any = None

    def start(self, consumer: Any) -> None:
        """Has full batches sent at once, others twice a second."""
        events = consumer.event_dispatcher
        if events is not None and events.buffer_group:
            events.on_send_buffered = None
            self.timer = consumer.timer.call_repeatedly(_EVENTS_WAIT_SECONDS, events.flush)

    def stop(self, _consumer: Any) -> None:
        """Stops the clock; the dispatcher's own end is Celery's business."""
        if self.timer is not None:
            self.timer.cancel()
