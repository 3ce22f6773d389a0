"""One rollout on the workers, as a run of its own: sent from this process, and waited for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmark.items import Item, LoadedItems
from rollout_tasks.api import Run
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.integrations.verl.orphaned_runs import UnfinishedRuns
from rollout_tasks.models.function_endpoint import FUNCTION_LIMITS, ModelFunction, NoRecord, function_engine
from rollout_tasks.models.gateway.gateway import Gateway, SessionHandle
from rollout_tasks.per_process import per_process
from rollout_tasks.redis_client import checked_client
from rollout_tasks.runs import conformance_check, preflight
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.progress import progress_of
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import new_submission
from rollout_tasks.runs.submit_to_workers import submit_to_workers
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.runs.waits import nobody_serves
from rollout_tasks.settings import checked_key, settings
from rollout_tasks.training.rewarded_traces import RewardedRollout

_LOOK_SECONDS, _ASK_SECONDS = 0.5, 15.0
_NO_FURTHER = frozenset({"done", "cancelled", "half_submitted", "unknown"})


class RolloutLost(Exception):
    """A rollout that says nothing about the model: the infrastructure lost it, or nothing of it can be trained on."""


async def roll_out(
    config: RunConfig, item: Item, function: ModelFunction, *, model: str, host: str, seconds: float
) -> RewardedRollout:
    """Rolls out an item on the workers with a function of this process as its model.

    When this process ends before, the rollout is cancelled.

    Args:
        config: The run's options, with its name, and without where its model is.
        item: The item.
        function: Answers Chat Completions requests, in the calling event loop.
        model: The model's name.
        host: The address at which the workers reach this machine.
        seconds: The longest wait for the rollout, after which it is cancelled.

    Raises:
        BenchmarkError: The metric cannot be used.
        RolloutLost: It was lost.
        UserError: An option or a service cannot be used.
    """
    name = str(config.run_id)
    folder = Path(config.output_dir).resolve() / name
    async with _served(function, name, model=model, host=host) as base_url:
        update = {"model": config.model.model_copy(update={"base_url": base_url})}
        _unfinished().begun(folder)
        try:
            run = await asyncio.to_thread(_submitted, config.model_copy(update=update), item)
            return await _in_time(run, item, seconds)
        finally:
            _unfinished().over(folder)


async def _in_time(run: Run, item: Item, seconds: float) -> RewardedRollout:
    """Waits for the run's rollout; cancels it when that is given up.

    Raises:
        RolloutLost: It says nothing about the model, or took too long.
    """
    try:
        async with asyncio.timeout(seconds):
            return await _rewarded(run, item)
    except TimeoutError:
        await _cancel(run)
        raise RolloutLost(f"run {run.run_id} was not over after {seconds:g} s, and was cancelled{_why(run)}") from None
    except asyncio.CancelledError:
        await asyncio.shield(_cancel(run))
        raise


@contextlib.asynccontextmanager
async def _served(function: ModelFunction, name: str, *, model: str, host: str) -> AsyncIterator[str]:
    """Serves a function of this event loop to the workers; yields where."""
    key = settings().openai_api_key
    if key is None:
        raise UserError("OPENAI_API_KEY is not set: set it to one secret text here and on the workers' machines")
    loop = asyncio.get_running_loop()

    async def answer(request: dict[str, object]) -> object:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function(request), loop))  # type: ignore[arg-type]

    engine = function_engine(answer, model)  # type: ignore[arg-type]
    token = checked_key(key.get_secret_value())
    session: SessionHandle = _gateway(host).open(name, engine, NoRecord(), FUNCTION_LIMITS, token=token)
    try:
        yield session.base_url
    finally:
        await asyncio.shield(asyncio.to_thread(session.close))


@per_process
def _gateway(host: str) -> Gateway:
    """Returns this process's gateway at an address, which lasts as long as the process."""
    gateway = Gateway(host=host)
    gateway.start()
    return gateway


@per_process
def _unfinished() -> UnfinishedRuns:
    """Returns this process's runs that are not over."""
    return UnfinishedRuns()


def _submitted(config: RunConfig, item: Item) -> Run:
    """Checks an item and sends it as a run of one rollout.

    Raises:
        UserError: An option, the item or a service cannot be used.
    """
    [item], _ = preflight.check_items(config, [item])
    images, doubts = [], []
    if preflight.needs_desktop(config, item):
        with checked_client() as client:
            checked = conformance_check.check(config, [item], client)
        images, doubts = list(checked.images), [one.sentence for one in checked.doubts]
    if doubts and not config.desktop.include_unfaithful:
        raise UserError(f"{doubts[0]} (run.desktop.include_unfaithful rolls it out anyway)")
    benchmark = LoadedItems("verl", "", (item,))
    submission, _ = submit_to_workers(new_submission(config, benchmark, doubts, images))
    return Run(submission.run_id, submission.folder.path, redis_url=settings().redis_address)


async def _rewarded(run: Run, item: Item) -> RewardedRollout:
    """Waits for the run's rollout.

    Raises:
        RolloutLost: It says nothing about the model.
    """
    await _verdict(run, rollout_id_of(item.id, 0))
    async for group in run.groups():
        if group.rollouts:
            return group.rollouts[0]
        verdict = RunFolder(run.folder).final_verdict(rollout_id_of(item.id, 0))
        why = f"{verdict.failure_class}: {verdict.error}" if verdict.failure_class else group.problem
        raise RolloutLost(
            f"the rollout of run {run.run_id} ({', '.join(group.left_out)}) says nothing about the model: {why}"
        )
    raise RolloutLost(f"run {run.run_id} has no rollout")


async def _verdict(run: Run, rollout_id: str) -> None:
    """Waits until a rollout has a verdict, or its run can get no further.

    A trainer waits for hundreds of rollouts at a time: a look into a folder costs much less than a question to Redis.
    """
    folder, asked = RunFolder(run.folder), time.monotonic()
    while await asyncio.to_thread(folder.settled, rollout_id) is None:
        if time.monotonic() - asked > _ASK_SECONDS:
            progress = await asyncio.to_thread(run.progress)
            if progress.state in _NO_FURTHER:
                return
            asked = time.monotonic()
        await asyncio.sleep(_LOOK_SECONDS)


async def _cancel(run: Run) -> None:
    """Cancels a run that may be over by now."""
    with contextlib.suppress(UserError):
        await asyncio.to_thread(run.cancel)


def _why(run: Run) -> str:
    """Returns the end of a sentence if no worker serves the run's queue."""
    with contextlib.suppress(UserError):
        store = RunStore(checked_client())
        if idle := nobody_serves(store, progress_of(store, run.run_id)):
            return f": {idle}"
    return ""
