"""An execution's claim on its rollout: while it holds one, no other execution works on that rollout."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass

import redis

from rollout_tasks.execution.shutdown import STOPPING_TRIES
from rollout_tasks.redis_client import connect
from rollout_tasks.runs.states import Claim
from rollout_tasks.runs.store import RunStore
from vm_pool.processes import has_ended, this_process

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Delivery:
    """The broker message that asked for the rollout."""

    task_id: str
    delivery_tag: str | None
    worker: str


class RolloutClaim:
    """Claims one rollout for one execution, counts its attempts, and gives it back."""

    def __init__(self, store: RunStore, run_id: str, rollout_id: str, delivery: Delivery) -> None:
        self._store = store
        self._run_id = run_id
        self._rollout_id = rollout_id
        self._delivery = delivery
        self.token = uuid.uuid4().hex
        """Names this execution in the run store."""
        self.counted = True
        """Whether the run store counts the current attempt."""

    def take(self) -> Claim:
        """Claims the rollout; if another execution holds it, finds out whether that one lives."""
        deadline = time.monotonic() + 2 * self._store.silent_seconds
        claim = self._ask()
        first_silence: float | None = None
        while claim.status == "busy" and claim.holder is not None and time.monotonic() < deadline:
            if claim.holder.get("message") != self._delivery.task_id:
                return claim
            if has_ended(str(claim.holder.get("process", ""))):
                claim = self._ask(dead_holder=str(claim.holder["token"]))
                continue
            if first_silence is not None and claim.silent < first_silence:
                return claim
            first_silence = claim.silent
            time.sleep(_LOOK_AGAIN_SECONDS)
            claim = self._ask()
        return claim

    def next_attempt(self, ended: int) -> Claim:
        """Counts another attempt, after the attempt with the number `ended`."""
        return self._ask(after=ended)

    def uncount(self, attempt: int) -> None:
        """Uncounts the current attempt, because the rollout waits for its model's endpoint."""
        # If this worker is told to stop in between, one attempt too few is counted, not one too many; so below.
        self._store.uncount(self._run_id, self._rollout_id, self.token, attempt)
        self.counted = False

    def count_again(self, uncounted: Claim) -> Claim:
        """Counts a new attempt in place of the one that is not counted."""
        self.counted = True
        return self._ask(after=uncounted.attempt - 1)

    def is_held(self) -> bool:
        """Returns whether this execution still holds the rollout; asks Redis."""
        return self._store.beat(self._run_id, self._rollout_id, self.token) not in {"superseded", "unknown"}

    def hand_back(self) -> None:
        """Gives the claim back, because this worker stops; the attempt does not count."""
        try:
            mine = RunStore(connect(tries=STOPPING_TRIES)).hand_back(
                self._run_id, self._rollout_id, self.token, counted=self.counted
            )
        except redis.RedisError as error:
            logger.warning("%s: this worker stops, but Redis does not take its claim back: %s", self._rollout_id, error)
            return
        if mine:
            logger.info("%s: handed back, because this worker stops", self._rollout_id)

    def _ask(self, *, after: int = 0, dead_holder: str = "") -> Claim:
        holder = {
            "token": self.token,
            "message": self._delivery.task_id,
            "worker": self._delivery.worker,
            "process": this_process(),
        }
        claim = self._store.claim(self._run_id, self._rollout_id, holder, after=after, dead_holder=dead_holder)
        self.counted = claim.status == "claimed"  # an exhausted or cancelled rollout is claimed without an attempt
        return claim
