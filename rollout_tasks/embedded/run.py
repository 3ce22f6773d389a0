"""Carries out a whole run on this machine: starts all services, watches the run to its end, and stops them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import redis
from rich.console import Console

from rollout_tasks.config import RunConfig
from rollout_tasks.embedded.concurrency import concurrency
from rollout_tasks.embedded.ctrl_c import CtrlC, StopRequested
from rollout_tasks.embedded.services import EmbeddedServices, WorkerVMs
from rollout_tasks.free_memory import free_memory
from rollout_tasks.models.scripted.process import ScriptedModelProcess
from rollout_tasks.queues import FINALIZE_QUEUE
from rollout_tasks.redis_client import checked_client
from rollout_tasks.runs import model_check, preflight
from rollout_tasks.runs.enqueue import queues_of
from rollout_tasks.runs.run_lock import held
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import Submission
from rollout_tasks.runs.submit import check_not_on_workers, enqueue, write_down
from rollout_tasks.runs.watch import watch
from rollout_tasks.vm_options import provider_options


@dataclass(frozen=True, slots=True)
class EmbeddedEnd:
    """How an embedded run ended."""

    progress: Progress | None
    """The last progress seen; None if the run was stopped at once."""
    interrupted: bool


def run_embedded(submission: Submission, console: Console, *, beginning: str = "") -> EmbeddedEnd:
    """Carries out a whole run on this machine and leaves only its folder behind.

    Args:
        submission: The run.
        console: Where to show its progress.
        beginning: What to say once all is checked and the run has its folder.

    Raises:
        ServiceEnded: A service that the run needs ended by itself; the run can be resumed.
        UserError: Something else is wrong, a service does not get ready, or others are rolling the run out.
    """
    submission = replace(submission, embedded=True)
    environments = preflight.check_names(submission.config, submission.items)
    preflight.check_here(submission.config, submission.items, environments)
    submission, scripted = _choose_model(submission, environments)
    needs_model = preflight.needs_model(submission.config, environments)
    model_check.check_cost(submission.config, needs_model=needs_model, spent=submission.spent)
    ctrl_c = CtrlC()
    progress: Progress | None = None
    model: ScriptedModelProcess | None = None
    stack: EmbeddedServices | None = None
    failed = True
    tempfile.gettempdir()  # looks for it by making a file, which a Ctrl-C would leave there
    with ctrl_c.caught(), ExitStack() as lock:
        try:
            write_down(submission)
            lock.enter_context(held(submission.folder))
            check_not_on_workers(submission)
            ctrl_c.check()
            if beginning:
                console.print(beginning)
            described = submission.config  # the address of the run's own scripted model is of no use to a later resume
            stack = EmbeddedServices(submission.folder.path / "logs")
            if scripted:
                model = ScriptedModelProcess(submission.folder.path / "items.jsonl")
                address = model.start()
                if model.pid is not None:
                    stack.stop_afterwards(model.pid)
                ctrl_c.check()
                submission = replace(submission, config=_with_model(submission.config, base_url=address))
            progress = _run(submission, described, stack, model, ctrl_c, console)
            failed = False
        except StopRequested:
            failed = False
        finally:
            ctrl_c.ignore()
            if model is not None:
                model.stop()
            if stack is not None:
                stack.stop(at_once=ctrl_c.stop_now or failed)
    return EmbeddedEnd(progress, ctrl_c.count > 0)


def _run(
    submission: Submission,
    described: RunConfig,
    stack: EmbeddedServices,
    model: ScriptedModelProcess | None,
    ctrl_c: CtrlC,
    console: Console,
) -> Progress:
    """Starts the services, enqueues the run and watches it to its end."""
    config = submission.config
    with_vms = config.vm.use_pool and preflight.needs_vm(config, submission.items)
    stack.start_valkey()
    ctrl_c.check()
    vms = WorkerVMs(config.vm.num_vms, config.vm.provider_name, config.vm.pool, provider_options(config))
    queues = [*queues_of(config, submission.items), FINALIZE_QUEUE]
    at_a_time = concurrency(config.num_rollouts, len(submission.todo), free_memory())
    if at_a_time.reason:
        console.print(f"note: {at_a_time.reason}")
    stack.start_worker(at_a_time.number, vms if with_vms else None, queues)
    ctrl_c.check()
    stack.start_flower()
    ctrl_c.check()
    _say_where_flower_is(stack, ctrl_c, console)
    store = RunStore(checked_client())
    ctrl_c.check()
    enqueue(submission, store, described=described)
    ctrl_c.check()
    ctrl_c.finish_first = True

    def look() -> None:
        ctrl_c.check()
        stack.check()
        if model is not None:
            model.check()
        _say_where_flower_is(stack, ctrl_c, console)
        if ctrl_c.drain_wanted:
            with suppress(redis.RedisError):  # the next look tries again
                store.set_draining(submission.run_id)
            ctrl_c.tell(console, "finishing the rollouts that run; Ctrl-C again stops them now")

    def drained(progress: Progress) -> bool:
        return progress.state == "draining" and progress.running == 0 and progress.pending > 0

    pool = config.vm.pool if with_vms else None
    return watch(store, submission.run_id, console, pool=pool, alive=look, until=drained, own_worker=True)


def _say_where_flower_is(stack: EmbeddedServices, ctrl_c: CtrlC, console: Console) -> None:
    """Prints Flower's address, once for each address: Flower gets another one if it is started again."""
    lost = f"the run goes on without Flower: {stack.flower_lost}"
    ctrl_c.tell(console, lost if stack.flower_lost else f"Flower: {stack.flower_url} (login {stack.flower_login})")


def _choose_model(submission: Submission, environments: Iterable[str]) -> tuple[Submission, bool]:
    """Chooses the run's endpoint; also returns whether to start the scripted model for it.

    Raises:
        UserError: The endpoint is wrong, or none is configured and the scripted model has no script for an item.
    """
    if not preflight.needs_model(submission.config, environments):
        return submission, False
    model_check.check_no_pool(submission.config)
    ours = submission.config.model.scripted and submission.config.model.base_url is None
    if not ours and model_check.model_address(submission.config) is not None:
        return replace(submission, config=model_check.check_model(submission.config)), False
    model_check.check_scripts(submission.config, submission.items)
    return replace(submission, config=_with_model(submission.config, scripted=True)), True


def _with_model(config: RunConfig, **changes: object) -> RunConfig:
    return config.model_copy(update={"model": config.model.model_copy(update=changes)})
