"""One rollout, from the message to its committed verdict.

    claim -> attempt (lease, environment, episode, evaluation) -> another attempt where the infrastructure failed -> commit

An at-least-once broker may run this twice for one rollout; the claim and the commit in the run store make it one result.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

from rollout_tasks.attempt import Attempt
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.heartbeat import Pulse, heartbeat
from rollout_tasks.interruption import Interruption
from rollout_tasks.redis_client import worker_client
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import Commit, Start
from rollout_tasks.runs.store import SILENT_SECONDS, RunStore
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.settings import settings

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Delivery:
    """The broker message that asked for the rollout."""

    task_id: str
    delivery_tag: str | None
    worker: str


@lru_cache(maxsize=1)
def _store_of(_pid: int) -> RunStore:
    return RunStore(worker_client(), silent_seconds=silent_seconds())


def run_store() -> RunStore:
    """This worker process's run store."""
    return _store_of(os.getpid())


def silent_seconds() -> float:
    """How long a holder may be silent: never longer than its message or its lease may."""
    return min(SILENT_SECONDS, settings().visibility_timeout, settings().lease_ttl)


def beat_interval() -> float:
    """Seconds between heartbeats: three chances before anybody counts the holder as dead."""
    return silent_seconds() / 3


@lru_cache(maxsize=16)
def _run_config(run_id: str, _created: float) -> tuple[RunConfig, RunFolder]:
    config, folder = run_store().config(run_id)
    return config, RunFolder(Path(folder))


def run_rollout(run_id: str, rollout_id: str, delivery: Delivery) -> str:
    """Brings one rollout to its verdict, unless somebody else has or does.

    Returns:
        What came of it, for the log: the verdict's status, or why there was nothing to do.

    Raises:
        redis.RedisError: Redis stayed away longer than patience lasts; the reconciler will send the rollout again.
    """
    return Execution(run_store(), run_id, rollout_id, delivery).run()


class Execution:
    """One execution of the task: its claim, its attempts, its commit."""

    config: RunConfig
    """Known once the rollout is claimed."""
    folder: RunFolder

    def __init__(self, store: RunStore, run_id: str, rollout_id: str, delivery: Delivery) -> None:
        self.store = store
        self.run_id = run_id
        self.rollout_id = rollout_id
        self.delivery = delivery
        self.token = uuid.uuid4().hex

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
        pulse = Pulse(
            self.run_id,
            self.rollout_id,
            self.token,
            interruption=Interruption(),
            delivery_tag=self.delivery.delivery_tag,
        )
        beats = heartbeat(beat_interval())
        beats.pulse = pulse
        try:
            verdict = self._verdict(start, pulse)
            return self._commit(verdict, pulse)
        finally:
            beats.pulse = None

    # -- claiming ---------------------------------------------------------------------------------------------------

    def _claim(self) -> Start:
        """Claims the rollout; where somebody holds it, finds out whether they live."""
        deadline = time.monotonic() + 2 * self.store.silent_seconds
        start = self._start()
        first_silence: float | None = None
        while start.status == "busy" and start.holder is not None and time.monotonic() < deadline:
            if start.holder.get("message") != self.delivery.task_id:
                return start
            if _is_dead(start.holder):
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
            **_this_process(),
        }
        return self.store.start(
            self.run_id,
            self.rollout_id,
            holder,
            after=after,
            dead_holder=dead_holder,
        )

    # -- attempting -------------------------------------------------------------------------------------------------

    def _verdict(self, start: Start, pulse: Pulse) -> Verdict:
        """Attempts until there is a verdict that another attempt would not change."""
        while True:
            if start.status == "cancelled":
                return self._without_attempt(start, FailureClass.CANCELLED, "the run was cancelled")
            if start.status == "exhausted":
                message = f"the worker process died in each of {start.attempt} attempts"
                return self._without_attempt(start, FailureClass.WORKER_LOST, message)
            if start.item is None:
                return self._without_attempt(start, FailureClass.INTERNAL, "the run store does not have its item")
            pulse.interruption = Interruption()
            attempt = Attempt(
                run_id=self.run_id,
                rollout_id=self.rollout_id,
                number=start.attempt,
                item=start.item,
                config=self.config,
                directory=self.folder.attempt(self.rollout_id, start.attempt),
                worker=self.delivery.worker,
            )
            verdict = attempt.run(pulse)
            failure = verdict.failure_class
            if failure is None or not failure.retried or start.attempt >= self.config.max_attempts or pulse.superseded:
                return verdict
            logger.warning("%s: attempt %d failed (%s: %s)", self.rollout_id, start.attempt, failure, verdict.error)
            again = self._start(after=start.attempt)
            if again.status != "started":
                return verdict
            start = again

    def _without_attempt(self, start: Start, failure: FailureClass, message: str) -> Verdict:
        """The verdict of a rollout that is not attempted (again)."""
        now = time.time()
        return Verdict(
            rollout_id=self.rollout_id,
            attempt=max(1, start.attempt),
            status="cancelled" if failure is FailureClass.CANCELLED else "failed",
            failure_class=failure,
            error=message,
            worker=self.delivery.worker,
            started=now,
            finished=now,
        )

    # -- committing -------------------------------------------------------------------------------------------------

    def _commit(self, verdict: Verdict, pulse: Pulse) -> str:
        """Files first, then the one atomic write; withdraws the file if that was refused."""
        if pulse.superseded or (pulse.silent > self.store.silent_seconds and not self._still_mine()):
            logger.warning("%s: attempt %d was taken over; its verdict is dropped", self.rollout_id, verdict.attempt)
            return "superseded"
        try:
            self.folder.write_result(verdict)
        except OSError as error:
            logger.error("%s: result not written: %s", self.rollout_id, error)
            verdict = replace(
                verdict,
                status="failed",
                score=None,
                failure_class=FailureClass.INTERNAL,
                error=f"the result could not be written to {self.folder.path}: {error.strerror}",
            )
        commit = self.store.commit(self.run_id, verdict, self.token)
        if commit.outcome != "ok":
            return self._refused(verdict, commit)
        if commit.finalize:
            from rollout_tasks.tasks import finalize_run

            finalize_run.apply_async((self.run_id,))
        return verdict.status

    def _still_mine(self) -> bool:
        return self.store.beat(self.run_id, self.rollout_id, self.token) not in {"superseded", "unknown"}

    def _refused(self, verdict: Verdict, commit: Commit) -> str:
        logger.warning("%s: verdict of attempt %d refused (%s)", self.rollout_id, verdict.attempt, commit.outcome)
        if commit.outcome != "unknown":
            self.folder.withdraw_result(verdict)
        return commit.outcome


@lru_cache(maxsize=1)
def _process_facts(pid: int) -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": pid, "began": round(psutil.Process(pid).create_time(), 2)}


def _this_process() -> dict[str, Any]:
    return _process_facts(os.getpid())


def _is_dead(holder: Mapping[str, Any]) -> bool:
    """Whether a holder ran on this machine and its process is gone."""
    if holder.get("host") != socket.gethostname():
        return False
    try:
        return abs(psutil.Process(int(holder["pid"])).create_time() - float(holder["began"])) > 1
    except (psutil.NoSuchProcess, KeyError, ValueError):
        return True
