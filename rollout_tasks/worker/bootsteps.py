"""Options and boot steps that this project adds to a Celery worker."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Container, Iterable
from functools import cache, partial
from multiprocessing.util import _exit_function  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import billiard.pool
import click
import redis
from celery import Celery, bootsteps, platforms, signals
from celery.concurrency.prefork import TaskPool

from rollout_tasks import settings as settings_of_process
from rollout_tasks.errors import WRONG_INPUT, UserError
from rollout_tasks.execution.shutdown import set_worker_stops
from rollout_tasks.log_lines import keep_to_one_line
from rollout_tasks.queues import FINALIZE_QUEUE
from rollout_tasks.redis_client import check_login, connect, let_celery_wait
from rollout_tasks.runs import presence
from rollout_tasks.temporary_files import use_own_folder
from rollout_tasks.worker.connection_losses import shorten
from rollout_tasks.worker.timers import EventBatches, LostWork, Presence
from rollout_tasks.worker.vm_host import HostedVMs

logger = logging.getLogger(__name__)

_RESULT_LOOKS = 20
"""How often a child that ends looks whether its worker has read the last result, ten times a second."""


@cache
def install(app: Celery) -> None:
    """Adds the worker options and boot steps to an application, once."""
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
            ["--vm-address"],
            default="127.0.0.1",
            help="This machine's address for workers that lease its VMs, with --num-vms.",
        )
    )
    app.user_options["worker"].add(
        click.Option(
            ["--trust-tasks"],
            is_flag=True,
            help="Run the setup and evaluation of desktop tasks in the worker's own process, not in cells: you wrote them.",
        )
    )
    app.steps["worker"].add(Prefork)
    app.steps["worker"].add(LoginCheck)
    app.steps["worker"].add(Leftovers)
    app.steps["worker"].add(NoNeighbours)
    app.steps["worker"].add(StopNotice)
    app.steps["worker"].add(HangUp)
    app.steps["worker"].add(ServedQueues)
    app.steps["worker"].add(SharedImports)
    app.steps["worker"].add(HostedVMs)
    app.steps["consumer"].add(LostWork)
    app.steps["consumer"].add(Presence)
    app.steps["consumer"].add(EventBatches)
    # Every model call is in its rollout's trajectory; a line for each would flood the worker's log.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    signals.after_setup_logger.connect(shorten, weak=False)
    signals.after_setup_logger.connect(lambda **_signal: keep_to_one_line(), weak=False)


class Prefork(bootsteps.StartStopStep):  # type: ignore[misc]
    """Refuses another pool (`--pool`): signals interrupt rollouts, in a main thread that the worker itself does not need.

    In the solo pool, a worker would give no sign of life while it has a rollout, and would end with one that is stuck.
    """

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        if not issubclass(worker.pool_cls, TaskPool):
            sys.stderr.write(
                "error: --pool: rollouts need the prefork pool, where each can be interrupted and ended: leave it out\n"
            )
            raise SystemExit(WRONG_INPUT)
        # A child that ends waits up to 30 s for its worker to read its last result. A worker that stops may have forgotten that
        # task, as the child said too late that it began, and then reads nothing; the task's message is delivered again. Any other
        # result is read even after its child has ended.
        billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = _RESULT_LOOKS


class LoginCheck(bootsteps.StartStopStep):  # type: ignore[misc]
    """Ends a worker whose Redis refuses it or is not trusted: Celery would try for ever. One that is away is awaited."""

    requires = (Prefork,)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        try:
            check_login()
        except UserError as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(WRONG_INPUT) from error


class Leftovers(bootsteps.StartStopStep):  # type: ignore[misc]
    """Cleans up after a killed worker: its children end; the next worker or child removes temporary files."""

    requires = (LoginCheck,)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        use_own_folder("rollout-worker-")
        signals.worker_process_init.connect(partial(begin_child, os.getpid()), weak=False)


def begin_child(worker: int, **_signal: Any) -> None:
    """Prepares a child. Ends it if its worker is gone: Celery has the kernel do that, but only from just before here."""
    if os.getppid() != worker:
        os._exit(1)
    let_celery_wait()
    use_own_folder("child-")


class NoNeighbours(bootsteps.StartStopStep):  # type: ignore[misc]
    """Switches off what workers say only to each other (`--without-gossip`, `--without-mingle`): nothing here uses it.

    Gossip tells workers of each other, and fails noisily at the loss of a connection; Flower hears each worker itself. By mingle, a
    worker that starts learns from the others which tasks were revoked (`celery control revoke`), so as not to execute them. Here
    nothing is cancelled that way: a rollout whose task was revoked is sent again, and is to be executed.
    """

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        # The consumer, which has these steps, is made later.
        worker.options.update(without_gossip=True, without_mingle=True)


class StopNotice(bootsteps.StartStopStep):  # type: ignore[misc]
    """Tells the children when their worker is told to stop, whichever way, so that rollouts which only wait end at once."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        set_worker_stops(False)
        wait_for_soft_shutdown = worker.wait_for_soft_shutdown

        def say_so_first() -> None:
            set_worker_stops(True)
            wait_for_soft_shutdown()

        worker.wait_for_soft_shutdown = say_so_first  # Celery has no signal before it

    def close(self, worker: Any) -> None:  # noqa: ARG002
        """Called first when the worker stops."""
        set_worker_stops(True)


class HangUp(bootsteps.StartStopStep):  # type: ignore[misc]
    """Stops a worker whose terminal is closed as SIGQUIT does: its rollouts are handed back.

    Celery handles SIGHUP only where the worker's output is not a terminal: then it restarts the worker. What this one has of its
    own, its folder and its template of cells, goes first.
    """

    def start(self, worker: Any) -> None:  # noqa: ARG002
        """Called when Celery has installed its own handlers; a SIGHUP that is ignored stays so."""
        handler = signal.getsignal(signal.SIGHUP)
        if handler is signal.SIG_DFL:
            platforms.signals["SIGHUP"] = self._hang_up
        elif callable(handler):
            platforms.signals["SIGHUP"] = partial(self._restart, handler)

    def _hang_up(self, *_: object) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a shell sends one, and the kernel another
        signal.raise_signal(signal.SIGQUIT)

    def _restart(self, handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
        handler(number, frame)
        # By now Celery has registered the function that replaces this program. The one that is registered last is called first.
        atexit.register(_exit_function)


class ServedQueues(bootsteps.StartStopStep):  # type: ignore[misc]
    """Without -Q, makes a worker serve the queues of the environments that this machine can run, and finalising.

    Leaves out those of -X. Warns of queues in either option that no environment has.
    """

    requires = (LoginCheck,)

    def __init__(self, worker: Any, *, trust_tasks: bool = False, **options: Any) -> None:
        super().__init__(worker, **options)
        if trust_tasks:
            settings_of_process.trust_tasks()
        command = click.get_current_context(silent=True)
        if command is None:
            return
        # Here, because Flower imports this module, too, and serves no queue.
        from rollout_tasks.registry import served_queues, unknown_queues

        selected, excluded = command.params.get("queues") or (), command.params.get("exclude_queues") or ()
        for option, queues in (("--queues", selected), ("--exclude-queues", excluded)):
            for queue, hint in unknown_queues(queues).items():
                logger.warning("%s: no environment sends its rollouts to %s; %s", option, queue, hint)
        if not selected:
            worker.app.amqp.queues.select([*served_queues(), FINALIZE_QUEUE])
            worker.app.amqp.queues.deselect(excluded)


class SharedImports(bootsteps.StartStopStep):  # type: ignore[misc]
    """Imports before the fork what rollouts use: the pool's processes share it and save half a second each.

    Also hides it from the garbage collector: walking all modules repeatedly costs time, and in a child copies memory.
    """

    requires = (LoginCheck, Leftovers, ServedQueues)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        # Here, because Flower imports this module, too, and runs nothing.
        from rollout_tasks.execution import rollout  # noqa: F401

        queues = worker.app.amqp.queues.consume_from
        _announce_start(worker.hostname, queues)
        preload_environments(queues)
        gc.collect()
        gc.freeze()


def preload_environments(queues: Container[str]) -> None:
    """Imports what the rollouts in these queues use. What cannot be imported is logged: its rollouts report it, too."""
    from rollout_tasks import registry  # here, as in ServedQueues

    for name, reason in registry.available_environments().items():
        environment = registry.environment(name) if reason is None else None
        if environment is None or environment.queue not in queues:
            continue
        try:
            environment.preload()
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the border to environments: the others are served)
            logger.error("environment %r: preload: %s: %s", name, type(error).__name__, error)
        try:
            needs_model = registry.agent(environment.default_agent).needs_model
        except UserError as error:  # a run may name another agent
            logger.error("environment %r: its default agent cannot be used: %s", name, error)
            continue
        if needs_model:
            # Here, because not every worker asks a model.
            import openai  # noqa: F401


def _announce_start(worker: str, queues: Iterable[str]) -> None:
    """Announces that the worker is starting; does nothing without Redis."""
    with contextlib.suppress(redis.RedisError, UserError):
        client = connect(tries=0, socket_timeout=2)
        presence.announce_start(client, worker, list(queues))
        client.close()
