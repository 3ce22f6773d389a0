"""Submits a run: validates everything, writes it down, enqueues it. If anything is wrong, nothing is enqueued."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.items import Item, LoadedItems, load_items
from benchmark.selection import select
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import RunState
from rollout_tasks.runs.verdict import Verdict, rollout_ids

if TYPE_CHECKING:  # Celery and Redis are imported where a run is sent, so that an error is reported fast.
    from rollout_tasks.runs.store import RunStore

_STORE_TRIES = 3
_RESUMABLE: tuple[RunState, ...] = ("done", "cancelled", "draining", "half_submitted")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the items came from, for the run's description."""

    name: str = ""
    path: str = ""
    left_out: Sequence[str] = ()
    """A sentence for each item that the run leaves out."""
    doubted: Sequence[str] = ()
    """A sentence for each item that is rolled out although its score cannot be relied on."""
    images: Sequence[str] = ()
    """The images of the desktops."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a submission will send: a new run, or what a resumed run still lacks."""

    run_id: str
    config: RunConfig
    folder: RunFolder
    items: Sequence[Item]
    kept: Sequence[Verdict]
    """Verdicts that a resumed run already has."""
    todo: Sequence[str]
    """Rollouts to send."""
    resumed: bool
    source: Source = Source()

    @property
    def total(self) -> int:
        """Rollouts of the run, including those that already have a verdict."""
        return len(self.kept) + len(self.todo)

    @property
    def spent(self) -> float:
        """Dollars that a resumed run has spent so far, as far as they are known."""
        return sum(verdict.total_cost or 0.0 for verdict in self.kept) + sum(cost for _, cost in self.spent_before())

    def spent_before(self) -> Iterator[tuple[str, float]]:
        """Yields the rollouts that a resumed run tries again, each with the known dollars for its earlier attempts."""
        for rollout_id in self.todo if self.resumed else ():
            with suppress(UserError, OSError):  # as for the rollout's verdict, they stay unknown then
                if (cost := self.folder.spent(rollout_id)) is not None:
                    yield rollout_id, cost

    @property
    def settled(self) -> bool:
        """Whether each rollout has a verdict that is kept, and the folder has settled it."""
        return not self.todo and all(self.folder.settled(verdict.rollout_id) for verdict in self.kept)

    def count_committed(self) -> int:
        """Returns how many of them have a verdict now; reads the folder."""
        return len(self.kept) + sum(1 for _ in self.folder.settled_verdicts(self.todo))


def load_benchmark(config: RunConfig) -> LoadedItems:
    """Loads the items, and selects those that the run asks for.

    Raises:
        UserError: No data was given.
        BenchmarkError: The data is wrong (names file, line and field), or no item matches the run's selection.
    """
    data = config.data
    if data.path is None:
        raise UserError("--data-path is missing: which benchmark file or tree?")
    loaded = load_items(
        data.path,
        answer_pattern=data.answer_pattern,
        skip_invalid=data.skip_invalid,
        fields=data.field_names,
        split=data.split,
    )
    seed = data.seed if data.shuffle else None
    chosen = select(loaded.items, ids=data.ids, domains=data.domains, shuffle_seed=seed, limit=data.limit)
    return replace(loaded, items=tuple(chosen))


def new_run_id(config: RunConfig) -> str:
    """Returns a name that sorts by time and contains the environment."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{config.env_mode}-{secrets.token_hex(2)}"


def new_work(
    config: RunConfig, benchmark: LoadedItems, doubted: Sequence[str] = (), images: Sequence[str] = ()
) -> Work:
    """Returns the work of a new run; reserves nothing yet.

    Args:
        config: The run's configuration.
        benchmark: Its items, and the sentences for those left out.
        doubted: A sentence for each item whose score cannot be relied on.
        images: The images of the desktops.
    """
    run_id = config.run_id or new_run_id(config)
    config = config.model_copy(update={"run_id": run_id, "output_dir": Path(config.output_dir).resolve()})
    folder = RunFolder(Path(config.output_dir) / run_id)
    todo = rollout_ids(benchmark.items, config.rollouts_per_item)
    source = Source(benchmark.name, str(benchmark.path), benchmark.skipped, doubted, images)
    return Work(run_id, config, folder, benchmark.items, (), todo, resumed=False, source=source)


def resumed_work(folder: RunFolder) -> Work:
    """Returns the work that a run's folder lacks: rollouts without a verdict, or lost to the infrastructure.

    Raises:
        UserError: The folder is not a run's, or its files are broken.
    """
    config = folder.description.config()
    items = folder.description.items()
    every = rollout_ids(items, config.rollouts_per_item)
    verdicts = {verdict.rollout_id: verdict for verdict in folder.verdicts(every)}
    kept = [verdict for verdict in verdicts.values() if not verdict.worth_repeating]
    names = {verdict.rollout_id for verdict in kept}
    todo = [name for name in every if name not in names]
    return Work(folder.path.name, config, folder, items, kept, todo, resumed=True)


def check_free(work: Work, store: RunStore) -> None:
    """Checks that no process works on the run, and that a new run's id is free.

    Raises:
        UserError: The run is being worked on, or the id is taken.
    """
    state = store.adopt(work.run_id)
    if not work.resumed:
        if state is not None:
            raise UserError(
                f"--run-id: a run {work.run_id!r} exists already; take another name, or continue it with rollouts resume"
            )
        return
    if state not in {None, *_RESUMABLE}:
        raise UserError(f"run {work.run_id} is still {state}; follow it with rollouts watch {work.run_id}")
    if store.running(work.run_id):
        raise UserError(f"rollouts of run {work.run_id} are still being finished; try again in a while")


def write_down(work: Work) -> None:
    """Makes a new run's folder; a resumed run has one.

    Raises:
        UserError: The folder exists already or cannot be written.
    """
    if work.resumed:
        return
    source = work.source
    work.folder.description.create(
        work.config,
        work.items,
        data_path=source.path,
        data_name=source.name,
        left_out=source.left_out,
        doubted=source.doubted,
        images=source.images,
    )


def enqueue(work: Work, store: RunStore, *, described: RunConfig | None = None) -> None:
    """Puts the run into the run store and sends its chord.

    Args:
        work: The run.
        store: The run store.
        described: The configuration that a resumed run's folder gets; default: the run's.

    Raises:
        UserError: Another process submitted the same run meanwhile, or Redis did not accept it; what was written is
            then removed. Or Redis was lost after it had accepted the run; the workers then go on with it.
    """
    from kombu.exceptions import OperationalError
    from redis import RedisError

    from rollout_tasks.runs.enqueue import queues_of

    try:
        free = store.forget(work.run_id, *_RESUMABLE) if work.resumed else True
        total = work.total
        queues = queues_of(work.config, work.items)
        token = store.create(work.run_id, work.config, str(work.folder.path), total, queues) if free else ""
        if not token:
            _discard(work)
            if work.resumed:
                raise UserError(f"run {work.run_id!r} was resumed by somebody else just now")
            raise UserError(f"--run-id: run {work.run_id!r} was submitted by somebody else just now")
        if work.resumed:
            work = _clear_the_way(work, store, token, described or work.config)
        _store(work, store, token)
    except (RedisError, OperationalError) as error:
        _take_back(work, store, error)
        raise UserError(f"Redis did not accept the run, so nothing was enqueued: {error}") from error
    try:
        _send(work, store, token)
    except (RedisError, OperationalError) as error:
        raise UserError(
            f"Redis was lost while the rollouts of run {work.run_id} were being sent ({error}); it has them all, so the workers"
            f" go on with the run once it is back: see rollouts status {work.run_id}"
        ) from error


def _clear_the_way(work: Work, store: RunStore, token: str, described: RunConfig) -> Work:
    """Prepares the folder of a resumed run, once the run is reserved.

    Records what the resume changes, and sets aside what is tried again; keeps what was finished meanwhile. What is kept and
    was not settled, as of a worker that was stopped while Redis was away, is settled.
    """
    try:
        with submitter_beats(work.run_id, token):
            work.folder.description.record_resume(described)
            finished = [verdict for verdict in work.folder.verdicts(work.todo) if not verdict.worth_repeating]
            names = {verdict.rollout_id for verdict in finished}
            todo = [name for name in work.todo if name not in names]
            kept = [work.folder.settle(verdict, written=True) for verdict in (*work.kept, *finished)]
            for rollout_id in todo:
                work.folder.set_aside(rollout_id)
    except (OSError, UserError) as error:
        store.forget(work.run_id, "submitting", "half_submitted")
        if isinstance(error, UserError):
            raise
        raise UserError(f"{work.folder.path} cannot be written: {error.strerror}") from error
    return replace(work, kept=kept, todo=todo)


def _store(work: Work, store: RunStore, token: str) -> None:
    """Stores the whole run before the first message is sent: a half-stored run is never rolled out."""
    for _ in range(_STORE_TRIES):
        store.add_results(work.run_id, token, work.kept)
        store.add_spent(work.run_id, token, work.spent_before())
        store.add_items(work.run_id, token, work.items, work.todo)
        store.wait_until_durable()
        if store.everything_stored(work.run_id, token):
            return
    raise UserError(
        f"run {work.run_id} is half-submitted: Redis keeps losing what is stored; once it works reliably,"
        f" complete the run with: rollouts resume {work.folder.path}"
    )


def _send(work: Work, store: RunStore, token: str) -> None:
    from rollout_tasks.queues import finalize_task
    from rollout_tasks.runs.enqueue import send_chord

    with submitter_beats(work.run_id, token):
        if work.todo:
            send_chord(work.run_id, work.config, {item.id: item for item in work.items}, work.todo)
        if not store.everything_sent(work.run_id, token):  # Redis came back without some of what was stored
            _store(work, store, token)
            store.spend_chord(work.run_id)
            store.everything_sent(work.run_id, token)
    if not work.todo:
        finalize_task(work.run_id).apply_async()


@contextmanager
def submitter_beats(run_id: str, token: str) -> Iterator[None]:
    """Records every few seconds that the submitter lives, from a thread: sending many messages takes minutes."""
    from redis import RedisError

    from rollout_tasks.redis_client import connect
    from rollout_tasks.runs.store import SUBMITTER_BEAT_SECONDS, RunStore

    over = threading.Event()

    def beat() -> None:
        with connect(tries=0, socket_timeout=SUBMITTER_BEAT_SECONDS) as client:
            store = RunStore(client)
            while not over.wait(SUBMITTER_BEAT_SECONDS):
                with suppress(RedisError, UserError):  # the sending thread gets the error too
                    store.submitter_lives(run_id, token)

    thread = threading.Thread(target=beat, name="submitter's heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _take_back(work: Work, store: RunStore, reason: Exception) -> None:
    """Removes a run that Redis did not accept; none of its messages was sent."""
    from redis import RedisError

    try:
        store.forget(work.run_id, "submitting", "half_submitted")
    except RedisError as error:
        raise UserError(
            f"Redis was lost while run {work.run_id} was being stored ({reason}), so nothing was enqueued; once it is back,"
            f" complete the run with: rollouts resume {work.folder.path}"
        ) from error
    _discard(work)


def _discard(work: Work) -> None:
    if not work.resumed:
        work.folder.discard()
