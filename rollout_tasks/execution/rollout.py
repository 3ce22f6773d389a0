"""One rollout, from the message to its committed verdict.

    claim -> attempt (lease, environment, episode, evaluation) -> another attempt if the infrastructure failed -> settle, commit

An at-least-once broker may run this twice for one rollout, and processes may die at any point. The claim in the run
store lets only one execution at a time work on it; the run's folder decides once which verdict is the rollout's; the
commit copies that verdict to the run store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import redis
from kombu.exceptions import OperationalError

from benchmark.items import Item
from benchmark.money import dollars
from rollout_tasks import registry
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.execution.attempt import Attempt
from rollout_tasks.execution.claim import Delivery, RolloutClaim
from rollout_tasks.execution.heartbeat import Pulse, heartbeat
from rollout_tasks.execution.results_disk import once_usable
from rollout_tasks.execution.shutdown import ShutdownSignals, WorkerShutdown, put_message_back, worker_stops
from rollout_tasks.execution.verdicts import RolloutVerdicts
from rollout_tasks.interruption import Interruption
from rollout_tasks.models.endpoint import endpoint_of
from rollout_tasks.models.outage import wait_while_out
from rollout_tasks.models.role_keys import models_with_keys
from rollout_tasks.models.sampling_seeds import with_later_seeds
from rollout_tasks.queues import finalize_task
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import Claim
from rollout_tasks.runs.store import RunStore, run_store
from rollout_tasks.runs.store_format import UnreadableRun, too_new
from rollout_tasks.runs.verdict import Verdict, split_rollout_id
from rollout_tasks.settings import settings

logger = logging.getLogger(__name__)

HANDED_BACK = "handed back"
"""What `run_rollout` returns of a rollout whose message is back in its queue."""
NOT_HANDED_BACK = "not handed back"
"""What it returns if the message could not be put back."""
MOST_OUTAGES = 10
"""How often one execution begins an attempt anew, without counting it, because it failed in an outage of its endpoint. Later
ones count in spite of an outage: perhaps this worker alone cannot reach the endpoint."""
UNREADABLE = "unreadable here"
"""What it returns of a rollout that this version cannot work on; the log says why."""

_Made = TypeVar("_Made")


@lru_cache(maxsize=16)
def _run_config(store: RunStore, run_id: str, _created: float) -> tuple[RunConfig, RunFolder]:
    config, folder = store.config(run_id)
    return config, RunFolder(Path(folder))


def run_rollout(run_id: str, rollout_id: str, delivery: Delivery) -> str:
    """Brings one rollout to its verdict, unless another execution has done so or is doing so.

    Returns:
        The result, for Flower and the log: the verdict's status and failure class, or why there was nothing to do;
        `HANDED_BACK` or `NOT_HANDED_BACK` if the worker stops; `UNREADABLE`.

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
            execution.claim.hand_back()
            outcome = HANDED_BACK
    if execution.stop.requested or outcome == HANDED_BACK:
        outcome = outcome if execution.put_message_back() else NOT_HANDED_BACK
    execution.stop.end_child()
    return outcome


class Execution:
    """One execution of the task: its claim, its attempts, its commit."""

    config: RunConfig
    """Known once the rollout is claimed; so are the next two."""
    folder: RunFolder
    verdicts: RolloutVerdicts
    failure_class: FailureClass | None = None
    """The committed verdict's."""

    def __init__(self, store: RunStore, run_id: str, rollout_id: str, delivery: Delivery) -> None:
        self.store = store
        self.run_id = run_id
        self.rollout_id = rollout_id
        self.delivery = delivery
        self.claim = RolloutClaim(store, run_id, rollout_id, delivery)
        self.stop = ShutdownSignals()

    def run(self, *, begins: bool = True) -> str:
        """Claims, attempts and commits.

        Args:
            begins: Whether an attempt may be begun here. A process that cancels a run begins none: the run may have been resumed
                meanwhile.
        """
        claimed = self.claim.take()
        if claimed.status == "claimed" and not begins:
            self.claim.hand_back()
            return HANDED_BACK
        if claimed.status == "newer":
            return self._leave(too_new(self.run_id))
        if claimed.status not in {"claimed", "exhausted", "cancelled"}:
            logger.info("%s: nothing to do (%s)", self.rollout_id, claimed.status)
            return claimed.status
        try:
            self.config, self.folder = _run_config(self.store, self.run_id, claimed.created)
        except KeyError:
            logger.warning("%s: run %s is gone from Redis; nothing to do", self.rollout_id, self.run_id)
            return "unknown"
        except UnreadableRun as error:
            self.store.hand_back(self.run_id, self.rollout_id, self.claim.token, counted=self.claim.counted)
            return self._leave(str(error))
        self.verdicts = RolloutVerdicts(self.folder, self.rollout_id, self.delivery.worker)
        pulse = Pulse(
            self.run_id,
            self.rollout_id,
            self.claim.token,
            interruption=Interruption(),
            delivery_tag=self.delivery.delivery_tag,
        )
        beats = heartbeat(settings().beat_seconds)
        beats.pulse = pulse
        try:
            return self._finish_or_attempt(claimed, pulse)
        finally:
            beats.pulse = None

    def _leave(self, why: str) -> str:
        logger.warning("%s: left to another worker: %s", self.rollout_id, why)
        return UNREADABLE

    def _finish_or_attempt(self, claimed: Claim, pulse: Pulse) -> str:
        """Commits what an earlier execution has finished, else attempts the rollout."""
        try:
            finished = self._on_disk(pulse, self._finished)
        except UserError as error:
            return self._store(self.verdicts.without_attempt(claimed.attempt, FailureClass.INTERNAL, str(error)))
        except OSError as error:
            message = f"{self.folder.rollout(self.rollout_id)} cannot be used: {error.strerror}"
            return self._store(self.verdicts.without_attempt(claimed.attempt, FailureClass.INTERNAL, message))
        if finished is not None:
            logger.info("%s: its attempt %d was finished already", self.rollout_id, finished.attempt)
            return self._settle(finished, pulse, written=True)
        verdict, attempted = self._verdict(claimed, pulse)
        return self._settle(verdict, pulse, written=attempted)

    def _finished(self) -> Verdict | None:
        """Returns the verdict of an attempt that an earlier execution has finished; removes what it left half-written."""
        if self.folder.begun_attempts(self.rollout_id):
            self.folder.remove_temporary_files(self.rollout_id)
        return self.folder.finished(self.rollout_id)

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

    # -- attempting -------------------------------------------------------------------------------------------------

    def _verdict(self, claimed: Claim, pulse: Pulse) -> tuple[Verdict, bool]:
        """Attempts until there is a verdict that another attempt would not change.

        Returns:
            The verdict, and whether it is an attempt's verdict, written to that attempt's folder.
        """
        outages = 0
        while True:
            if claimed.status == "cancelled":
                return self.verdicts.without_attempt(
                    claimed.attempt, FailureClass.CANCELLED, "the run was cancelled"
                ), False
            if claimed.status == "exhausted":
                return self.verdicts.exhausted(claimed.attempt), False
            item = claimed.item
            if item is None:
                message = "the run store does not have its item"
                return self.verdicts.without_attempt(claimed.attempt, FailureClass.INTERNAL, message), False
            pulse.interruption = Interruption()
            self._outlast_outage(item, claimed.attempt, pulse, suspected=False)
            if not self.claim.counted:
                claimed = self.claim.count_again(claimed)
                if claimed.status != "claimed":
                    continue
            try:
                number = self._on_disk(pulse, partial(self.folder.begin_attempt, self.rollout_id, claimed.attempt))
                with self.stop.interrupting(pulse.interruption):
                    verdict = replace(self._attempt(number, item, pulse), earlier_cost=self.verdicts.spent())
                if self.stop.requested and verdict.failure_class is FailureClass.WORKER_LOST:
                    raise WorkerShutdown
                self._on_disk(pulse, partial(self.folder.write_attempt, verdict))
            except OSError as error:
                return self.verdicts.unwritten(claimed.attempt, error), False
            failure = verdict.failure_class
            if failure is FailureClass.MODEL_OVERLOAD and not pulse.superseded:
                over = self._outlast_outage(item, claimed.attempt, pulse, suspected=True)
                if not self.claim.counted:
                    claimed = self.claim.count_again(claimed)
                    if claimed.status not in {"claimed", "cancelled"}:
                        return verdict, True
                if over and outages < MOST_OUTAGES:
                    outages += 1
                    continue
            if (
                failure is None
                or not failure.retried
                or claimed.attempt >= self.config.max_attempts
                or pulse.superseded
            ):
                return verdict, True
            logger.warning("%s: attempt %d failed (%s: %s)", self.rollout_id, verdict.attempt, failure, verdict.error)
            self.stop.raise_if_requested()
            again = self.claim.next_attempt(claimed.attempt)
            if again.status != "claimed":
                return verdict, True
            claimed = again

    def _outlast_outage(self, item: Item, attempt: int, pulse: Pulse, *, suspected: bool) -> bool:
        """Waits, without a VM, while a model's endpoint is out of service. The attempt is not counted meanwhile.

        Returns:
            Whether it was out of service, so that an attempt that just failed says nothing about the agent.
        """
        try:
            environment = registry.environment(registry.environment_name(item, self.config))
            if not registry.agent(self.config.agent or environment.default_agent).needs_model:
                return False
            endpoints = dict.fromkeys(
                (endpoint_of(model), model.api, key) for model, key in models_with_keys(self.config)
            )
        except UserError:  # the attempt reports it
            return False

        def wanted() -> bool:
            if worker_stops():
                raise WorkerShutdown
            return self._goes_on(pulse)

        def uncount() -> None:
            if self.claim.counted:  # else another endpoint is out, too
                self.claim.uncount(attempt)

        waited = [
            wait_while_out(
                self.store.client,
                endpoint,
                suspected=suspected,
                wanted=wanted,
                before_waiting=uncount,
                run_id=pulse.run_id,
                api=api,
                key=key,
            )
            for endpoint, api, key in endpoints
        ]
        return any(waited)

    def _goes_on(self, pulse: Pulse) -> bool:
        self.stop.raise_if_requested()
        return not (pulse.superseded or pulse.interruption.requested)

    def _on_disk(self, pulse: Pulse, use: Callable[[], _Made]) -> _Made:
        """Uses the run's folder; waits while its disk is full or fails."""
        return once_usable(use, self.folder.path, wanted=partial(self._goes_on, pulse))

    def _attempt(self, number: int, item: Item, pulse: Pulse) -> Verdict:
        attempt = Attempt(
            run_id=self.run_id,
            rollout_id=self.rollout_id,
            number=number,
            item=item,
            config=with_later_seeds(self.config, split_rollout_id(self.rollout_id)[1]),
            directory=self.folder.attempt(self.rollout_id, number),
            worker=self.delivery.worker,
        )
        return attempt.run(pulse)

    # -- committing -------------------------------------------------------------------------------------------------

    def _settle(self, verdict: Verdict, pulse: Pulse, *, written: bool) -> str:
        """Settles the verdict in the folder, where the first one stays; then commits what the folder has.

        An execution that has lost the claim does nothing: the next holder finds a finished attempt.
        """
        doubtful = verdict.status != "completed" or pulse.silent > self.store.silent_seconds
        if pulse.superseded or (doubtful and not self.claim.is_held()):
            logger.warning("%s: attempt %d was taken over; its verdict is dropped", self.rollout_id, verdict.attempt)
            return "superseded"
        try:
            settled = self._on_disk(pulse, partial(self.folder.settle, verdict, written=written))
        except UserError as error:
            settled = replace(
                verdict, status="failed", failure_class=FailureClass.INTERNAL, score=None, error=str(error)
            )
        except OSError as error:
            settled = self.verdicts.unwritten(verdict.attempt, error)
        return self._store(settled)

    def _store(self, verdict: Verdict) -> str:
        commit = self.store.commit(self.run_id, verdict, self.claim.token)
        if commit.outcome != "ok":
            logger.warning("%s: verdict of attempt %d refused (%s)", self.rollout_id, verdict.attempt, commit.outcome)
            return commit.outcome
        self.failure_class = verdict.failure_class
        finalize = commit.finalize
        if commit.reached_max_cost:
            why = f"the run has reached its --max-cost of {dollars(self.config.max_cost or 0.0)}"
            logger.warning("run %s: %s; the rest is cancelled", self.run_id, why)
            finalize = self.store.cancel(self.run_id, self.folder.may_have_begun, why=why).left == 0
        if finalize:
            finalize_task(self.run_id).apply_async()
        return verdict.status
