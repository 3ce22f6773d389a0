"""One rollout, from the message to its committed verdict.

    claim -> attempt (lease, environment, episode, evaluation) -> another attempt if the infrastructure failed -> settle, commit

An at-least-once broker may run this twice for one rollout, and processes may die at any point. The claim in the run
store lets only one execution at a time work on it; the run's folder decides once which verdict is the rollout's; the
commit copies that verdict to the run store.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import redis
from kombu.exceptions import OperationalError

from benchmark.items import Item
from benchmark.report import dollars
from rollout_tasks import registry
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.execution.attempt import Attempt
from rollout_tasks.execution.full_disk import once_there_is_room
from rollout_tasks.execution.heartbeat import Pulse, heartbeat
from rollout_tasks.execution.shutdown import (
    STOPPING_TRIES,
    ShutdownSignals,
    WorkerShutdown,
    put_message_back,
    worker_stops,
)
from rollout_tasks.interruption import Interruption
from rollout_tasks.models.client import endpoint_of
from rollout_tasks.models.outage import wait_while_out
from rollout_tasks.queues import finalize_task
from rollout_tasks.redis_client import connect
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import Start
from rollout_tasks.runs.store import RunStore, UnreadableRun, run_store
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.settings import settings
from vm_pool.processes import has_ended, this_process

logger = logging.getLogger(__name__)

HANDED_BACK = "handed back"
"""What `run_rollout` returns of a rollout whose message is back in its queue."""
NOT_HANDED_BACK = "not handed back"
"""What it returns if the message could not be put back."""
_LOOK_AGAIN_SECONDS = 0.5

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The broker message that asked for the rollout."""

    task_id: str
    delivery_tag: str | None
    worker: str


@lru_cache(maxsize=16)
def _run_config(run_id: str, _created: float) -> tuple[RunConfig, RunFolder]:
    config, folder = run_store().config(run_id)
    return config, RunFolder(Path(folder))


def run_rollout(run_id: str, rollout_id: str, delivery: Delivery) -> str:
    """Brings one rollout to its verdict, unless another execution has done so or is doing so.

    Returns:
        The result, for Flower and the log: the verdict's status and failure class, or why there was nothing to do;
        `HANDED_BACK` or `NOT_HANDED_BACK` if the worker stops.

    Raises:
        redis.RedisError: Redis was unavailable for too long; the reconciler will send the rollout again.
    """
    execution = Execution(run_store(), run_id, rollout_id, delivery)
    with execution.stop:
        try:
            outcome = execution.run()
            if execution.failure_class is not None:
                outcome = f"{outcome}: {execution.failure_class}"
        except WorkerShutdown:
            execution.hand_back()
            outcome = HANDED_BACK
    if execution.stop.asked or outcome == HANDED_BACK:
        outcome = outcome if execution.put_message_back() else NOT_HANDED_BACK
    execution.stop.end_child()
    return outcome


class Execution:
    """One execution of the task: its claim, its attempts, its commit."""

    config: RunConfig
    """Known once the rollout is claimed."""
    folder: RunFolder
    failure_class: FailureClass | None = None
    """The committed verdict's."""

    def __init__(self, store: RunStore, run_id: str, rollout_id: str, delivery: Delivery) -> None:
        self.store = store
        self.run_id = run_id
        self.rollout_id = rollout_id
        self.delivery = delivery
        self.token = uuid.uuid4().hex
        self.stop = ShutdownSignals()
        self._counted = True
        """Whether the run store counts the current attempt."""

    def run(self) -> str:
        """Claims, attempts and commits."""
        start = self._claim()
        if start.status not in {"started", "exhausted", "cancelled"}:
            logger.info("%s: nothing to do (%s)", self.rollout_id, start.status)
            return start.status
        try:
            self.config, self.folder = _run_config(self.run_id, start.created)
        except KeyError:
            logger.warning("%s: run %s is gone from Redis; nothing to do", self.rollout_id, self.run_id)
            return "unknown"
        except UnreadableRun as error:
            logger.warning("%s: %s", self.rollout_id, error)
            self.store.hand_back(self.run_id, self.rollout_id, self.token)
            return "newer"
        pulse = Pulse(
            self.run_id,
            self.rollout_id,
            self.token,
            interruption=Interruption(),
            delivery_tag=self.delivery.delivery_tag,
        )
        beats = heartbeat(settings().beat_seconds)
        beats.pulse = pulse
        try:
            return self._finish_or_attempt(start, pulse)
        finally:
            beats.pulse = None

    def _finish_or_attempt(self, start: Start, pulse: Pulse) -> str:
        """Commits what an earlier execution has finished, else attempts the rollout."""
        try:
            if self.folder.begun_attempts(self.rollout_id):
                self.folder.remove_temporary_files(self.rollout_id)
            finished = self.folder.finished(self.rollout_id)
        except UserError as error:
            return self._store(self._without_attempt(start.attempt, FailureClass.INTERNAL, str(error)))
        except OSError as error:
            message = f"{self.folder.rollout(self.rollout_id)} cannot be used: {error.strerror}"
            return self._store(self._without_attempt(start.attempt, FailureClass.INTERNAL, message))
        if finished is not None:
            logger.info("%s: its attempt %d was finished already", self.rollout_id, finished.attempt)
            return self._settle(finished, pulse, written=True)
        verdict, attempted = self._verdict(start, pulse)
        return self._settle(verdict, pulse, written=attempted)

    # -- handing back -----------------------------------------------------------------------------------------------

    def hand_back(self) -> None:
        """Gives the claim back, because this worker stops; the attempt does not count."""
        try:
            mine = RunStore(connect(tries=STOPPING_TRIES)).hand_back(
                self.run_id, self.rollout_id, self.token, counted=self._counted
            )
        except redis.RedisError as error:
            logger.warning("%s: this worker stops, but Redis does not take its claim back: %s", self.rollout_id, error)
            return
        if mine:
            logger.info("%s: handed back, because this worker stops", self.rollout_id)

    def put_message_back(self) -> bool:
        """Puts the message back: another worker continues the rollout, or counts it in its chord if it is committed."""
        if self.delivery.delivery_tag is None:
            return False
        try:
            put_message_back(self.delivery.delivery_tag)
        except (redis.RedisError, OperationalError) as error:
            logger.warning("%s: its message comes back later: %s", self.rollout_id, error)
            return False
        return True

    # -- claiming ---------------------------------------------------------------------------------------------------

    def _claim(self) -> Start:
        """Claims the rollout; if another execution holds it, finds out whether that one lives."""
        deadline = time.monotonic() + 2 * self.store.silent_seconds
        start = self._start()
        first_silence: float | None = None
        while start.status == "busy" and start.holder is not None and time.monotonic() < deadline:
            if start.holder.get("message") != self.delivery.task_id:
                return start
            if has_ended(str(start.holder.get("process", ""))):
                start = self._start(dead_holder=str(start.holder["token"]))
                continue
            if first_silence is not None and start.silent < first_silence:
                return start
            first_silence = start.silent
            time.sleep(_LOOK_AGAIN_SECONDS)
            start = self._start()
        return start

    def _start(self, *, after: int = 0, dead_holder: str = "") -> Start:
        holder = {
            "token": self.token,
            "message": self.delivery.task_id,
            "worker": self.delivery.worker,
            "process": this_process(),
        }
        return self.store.start(
            self.run_id,
            self.rollout_id,
            holder,
            after=after,
            dead_holder=dead_holder,
        )

    # -- attempting -------------------------------------------------------------------------------------------------

    def _verdict(self, start: Start, pulse: Pulse) -> tuple[Verdict, bool]:
        """Attempts until there is a verdict that another attempt would not change.

        Returns:
            The verdict, and whether it is an attempt's verdict, written to that attempt's folder.
        """
        while True:
            if start.status == "cancelled":
                return self._without_attempt(start.attempt, FailureClass.CANCELLED, "the run was cancelled"), False
            if start.status == "exhausted":
                return self._without_attempt(start.attempt, FailureClass.WORKER_LOST, self._died(start.attempt)), False
            item = start.item
            if item is None:
                message = "the run store does not have its item"
                return self._without_attempt(start.attempt, FailureClass.INTERNAL, message), False
            pulse.interruption = Interruption()
            self._outlast_outage(item, start.attempt, pulse, suspected=False)
            if not self._counted:
                start = self._start_again(start)
                if start.status != "started":
                    continue
            try:
                number = self._written(pulse, partial(self.folder.begin_attempt, self.rollout_id, start.attempt))
                with self.stop.interrupting(pulse.interruption):
                    verdict = replace(self._attempt(number, item, pulse), earlier_cost=self._spent())
                if self.stop.asked and verdict.failure_class is FailureClass.WORKER_LOST:
                    raise WorkerShutdown
                self._written(pulse, partial(self.folder.write_attempt, verdict))
            except OSError as error:
                return self._unwritten(start.attempt, error), False
            failure = verdict.failure_class
            if failure is FailureClass.MODEL_OVERLOAD and not pulse.superseded:
                over = self._outlast_outage(item, start.attempt, pulse, suspected=True)
                if not self._counted:
                    start = self._start_again(start)
                    if start.status not in {"started", "cancelled"}:
                        return verdict, True
                if over:
                    continue
            if failure is None or not failure.retried or start.attempt >= self.config.max_attempts or pulse.superseded:
                return verdict, True
            logger.warning("%s: attempt %d failed (%s: %s)", self.rollout_id, verdict.attempt, failure, verdict.error)
            self.stop.raise_if_asked()
            again = self._start(after=start.attempt)
            if again.status != "started":
                return verdict, True
            start = again

    def _outlast_outage(self, item: Item, attempt: int, pulse: Pulse, *, suspected: bool) -> bool:
        """Waits, without a VM, while the model's endpoint is out of service. The attempt is not counted meanwhile.

        Returns:
            Whether it was out of service, so that an attempt that just failed says nothing about the agent.
        """
        try:
            environment = registry.environment(registry.environment_name(item, self.config))
            if not registry.agent(self.config.agent or environment.default_agent).needs_model:
                return False
        except UserError:  # the attempt reports it
            return False

        def uncount() -> None:
            self._counted = False
            self.store.uncount(self.run_id, self.rollout_id, self.token, attempt)

        def wanted() -> bool:
            if worker_stops():
                raise WorkerShutdown
            return self._goes_on(pulse)

        endpoint = endpoint_of(self.config.model)
        return wait_while_out(self.store.client, endpoint, suspected=suspected, wanted=wanted, began=uncount)

    def _start_again(self, uncounted: Start) -> Start:
        """Counts a new attempt in place of one that is not counted."""
        start = self._start(after=uncounted.attempt - 1)
        self._counted = True
        return start

    def _goes_on(self, pulse: Pulse) -> bool:
        self.stop.raise_if_asked()
        return not (pulse.superseded or pulse.interruption.requested)

    def _written(self, pulse: Pulse, write: Callable[[], _Made]) -> _Made:
        """Writes to the run's folder; waits while its disk is full."""
        return once_there_is_room(write, self.folder.path, wanted=partial(self._goes_on, pulse))

    def _attempt(self, number: int, item: Item, pulse: Pulse) -> Verdict:
        attempt = Attempt(
            run_id=self.run_id,
            rollout_id=self.rollout_id,
            number=number,
            item=item,
            config=self.config,
            directory=self.folder.attempt(self.rollout_id, number),
            worker=self.delivery.worker,
        )
        return attempt.run(pulse)

    def _spent(self) -> float | None:
        """Returns the dollars for the attempts that have ended so far, with those set aside; None when they are not known."""
        with suppress(UserError, OSError):  # then they stay unknown
            return self.folder.spent(self.rollout_id)
        return None

    def _without_attempt(self, attempt: int, failure: FailureClass, message: str) -> Verdict:
        """Returns the verdict of a rollout that no attempt of this execution decided."""
        now = time.time()
        return Verdict(
            rollout_id=self.rollout_id,
            attempt=max(1, attempt),
            status="cancelled" if failure is FailureClass.CANCELLED else "failed",
            failure_class=failure,
            error=message,
            earlier_cost=self._spent(),
            worker=self.delivery.worker,
            started=now,
            finished=now,
        )

    def _died(self, attempts: int) -> str:
        """Returns how a rollout used up its attempts, the last of which left no result."""
        failed = [ended.failure_class for ended in self.folder.attempts(self.rollout_id) if ended.failure_class]
        if not failed:
            return f"the worker process died in each of {attempts} attempts"
        how, died = ", ".join(sorted(set(failed))), attempts - len(failed)
        if died <= 0:
            return f"each of {attempts} attempts failed ({how}), and then the worker process died"
        return f"the worker process died in {died} of {attempts} attempts; the others failed ({how})"

    def _unwritten(self, attempt: int, error: OSError) -> Verdict:
        logger.error("%s: result not written: %s", self.rollout_id, error)
        message = f"the result could not be written to {self.folder.path}: {error.strerror}"
        return self._without_attempt(attempt, FailureClass.INTERNAL, message)

    # -- committing -------------------------------------------------------------------------------------------------

    def _settle(self, verdict: Verdict, pulse: Pulse, *, written: bool) -> str:
        """Settles the verdict in the folder, where the first one stays; then commits what the folder has.

        An execution that has lost the claim does nothing: the next holder finds a finished attempt.
        """
        doubtful = verdict.status != "completed" or pulse.silent > self.store.silent_seconds
        if pulse.superseded or (doubtful and not self._still_mine()):
            logger.warning("%s: attempt %d was taken over; its verdict is dropped", self.rollout_id, verdict.attempt)
            return "superseded"
        try:
            settled = self._written(pulse, partial(self.folder.settle, verdict, written=written))
        except UserError as error:
            settled = replace(
                verdict, status="failed", failure_class=FailureClass.INTERNAL, score=None, error=str(error)
            )
        except OSError as error:
            settled = self._unwritten(verdict.attempt, error)
        return self._store(settled)

    def _store(self, verdict: Verdict) -> str:
        commit = self.store.commit(self.run_id, verdict, self.token)
        if commit.outcome != "ok":
            logger.warning("%s: verdict of attempt %d refused (%s)", self.rollout_id, verdict.attempt, commit.outcome)
            return commit.outcome
        self.failure_class = verdict.failure_class
        finalize = commit.finalize
        if commit.reached_max_cost:
            why = f"the run has reached its --max-cost of {dollars(self.config.max_cost or 0.0)}"
            logger.warning("run %s: %s; the rest is cancelled", self.run_id, why)
            finalize = self.store.cancel(self.run_id, why=why).left == 0
        if finalize:
            finalize_task(self.run_id).apply_async()
        return verdict.status

    def _still_mine(self) -> bool:
        return self.store.beat(self.run_id, self.rollout_id, self.token) not in {"superseded", "unknown"}
