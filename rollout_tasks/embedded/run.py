"""Carries out a whole run on this machine: starts all services, watches the run to its end, and stops them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import psutil
import redis
from rich.console import Console

from rollout_tasks.config import RunConfig
from rollout_tasks.embedded.concurrency import concurrency
from rollout_tasks.embedded.ctrl_c import CtrlC, StopRequested
from rollout_tasks.embedded.services import EmbeddedServices, WorkerVMs
from rollout_tasks.models.scripted.process import ScriptedModelProcess
from rollout_tasks.queues import FINALIZE_QUEUE
from rollout_tasks.redis_client import checked_client
from rollout_tasks.runs import model_check, preflight
from rollout_tasks.runs.enqueue import queues_of
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submit import Work, enqueue, write_down
from rollout_tasks.runs.watch import watch
from rollout_tasks.vm_options import provider_options


@dataclass(frozen=True, slots=True)
class EmbeddedEnd:
    """How an embedded run ended."""

    progress: Progress | None
    """The last progress seen; None if the run was stopped at once."""
    interrupted: bool


def run_embedded(work: Work, console: Console) -> EmbeddedEnd:
    """Carries out a whole run on this machine and leaves only its folder behind.

    Raises:
        ServiceEnded: A service that the run needs ended by itself; the run can be resumed.
        UserError: Something else is wrong, or a service does not get ready.
    """
    environments = preflight.check_names(work.config, work.items)
    preflight.check_here(work.config, work.items, environments)
    work, scripted = _choose_model(work, environments)
    needs_model = preflight.needs_model(work.config, environments)
    model_check.check_cost(work.config, needs_model=needs_model, spent=work.spent)
    ctrl_c = CtrlC()
    progress: Progress | None = None
    model: ScriptedModelProcess | None = None
    stack: EmbeddedServices | None = None
    failed = True
    with ctrl_c.caught():
        try:
            write_down(work)
            ctrl_c.check()
            described = work.config  # the address of the run's own scripted model is of no use to a later resume
            stack = EmbeddedServices(work.folder.path / "logs")
            if scripted:
                model = ScriptedModelProcess(work.folder.path / "items.jsonl")
                address = model.start()
                if model.pid is not None:
                    stack.stop_afterwards(model.pid)
                ctrl_c.check()
                work = replace(work, config=_with_model(work.config, base_url=address))
            progress = _run(work, described, stack, model, ctrl_c, console)
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
    work: Work,
    described: RunConfig,
    stack: EmbeddedServices,
    model: ScriptedModelProcess | None,
    ctrl_c: CtrlC,
    console: Console,
) -> Progress:
    """Starts the services, enqueues the run and watches it to its end."""
    config = work.config
    with_vms = config.vm.use_pool and preflight.needs_vm(config, work.items)
    stack.start_valkey()
    ctrl_c.check()
    vms = WorkerVMs(config.vm.num_vms, config.vm.provider_name, config.vm.pool, provider_options(config))
    queues = [*queues_of(config, work.items), FINALIZE_QUEUE]
    at_a_time = concurrency(config.num_rollouts, len(work.todo), psutil.virtual_memory().available)
    if at_a_time.reason:
        console.print(f"note: {at_a_time.reason}")
    stack.start_worker(at_a_time.number, vms if with_vms else None, queues)
    ctrl_c.check()
    stack.start_flower()
    ctrl_c.check()
    _say_where_flower_is(stack, ctrl_c, console)
    store = RunStore(checked_client())
    ctrl_c.check()
    enqueue(work, store, described=described)
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
                store.set_draining(work.run_id)
            ctrl_c.tell(console, "finishing the rollouts that run; Ctrl-C again stops them now")

    def drained(progress: Progress) -> bool:
        return progress.state == "draining" and progress.running == 0 and progress.pending > 0

    pool = config.vm.pool if with_vms else None
    return watch(store, work.run_id, console, pool=pool, alive=look, until=drained, own_worker=True)


def _say_where_flower_is(stack: EmbeddedServices, ctrl_c: CtrlC, console: Console) -> None:
    """Prints Flower's address, once for each address: Flower gets another one if it is started again."""
    lost = f"the run goes on without Flower: {stack.flower_lost}"
    ctrl_c.tell(console, lost if stack.flower_lost else f"Flower: {stack.flower_url} (login {stack.flower_login})")


def _choose_model(work: Work, environments: Iterable[str]) -> tuple[Work, bool]:
    """Chooses the run's endpoint; also returns whether to start the scripted model for it.

    Raises:
        UserError: The endpoint is wrong, or none is configured and the scripted model has no script for an item.
    """
    if not preflight.needs_model(work.config, environments):
        return work, False
    ours = work.config.model.scripted and work.config.model.base_url is None
    if not ours and model_check.model_address(work.config) is not None:
        return replace(work, config=model_check.check_model(work.config)), False
    model_check.check_scripts(work.items)
    return replace(work, config=_with_model(work.config, scripted=True)), True


def _with_model(config: RunConfig, **changes: object) -> RunConfig:
    return config.model_copy(update={"model": config.model.model_copy(update=changes)})
