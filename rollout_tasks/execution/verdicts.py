"""Verdicts that no attempt gives: of rollouts that are cancelled, out of attempts, or cannot be written."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict

logger = logging.getLogger(__name__)


class RolloutVerdicts:
    """The verdicts on one rollout that no attempt gives.

    Args:
        folder: The run's folder.
        rollout_id: The rollout.
        worker: The worker that gives them.
    """

    def __init__(self, folder: RunFolder, rollout_id: str, worker: str) -> None:
        self._folder = folder
        self._rollout_id = rollout_id
        self._worker = worker

    def without_attempt(self, attempt: int, failure: FailureClass, message: str) -> Verdict:
        """Returns the verdict that the rollout failed for this reason, or was cancelled."""
        now = time.time()
        return Verdict(
            rollout_id=self._rollout_id,
            attempt=max(1, attempt),
            status="cancelled" if failure is FailureClass.CANCELLED else "failed",
            failure_class=failure,
            error=message,
            earlier_cost=self.spent(),
            worker=self._worker,
            started=now,
            finished=now,
        )

    def exhausted(self, attempts: int) -> Verdict:
        """Returns the verdict of a rollout that used up its attempts, the last of which left no result."""
        return self.without_attempt(attempts, FailureClass.WORKER_LOST, self._how_attempts_ended(attempts))

    def unwritten(self, attempt: int, error: OSError) -> Verdict:
        """Returns the verdict of a rollout whose result could not be written to the folder."""
        logger.error("%s: result not written: %s", self._rollout_id, error)
        message = f"the result could not be written to {self._folder.path}: {error.strerror}"
        return self.without_attempt(attempt, FailureClass.INTERNAL, message)

    def spent(self) -> float | None:
        """Returns the dollars for the attempts that have ended so far, with those set aside; None when they are not known."""
        with suppress(UserError, OSError):  # then they stay unknown
            return self._folder.spent(self._rollout_id)
        return None

    def _how_attempts_ended(self, attempts: int) -> str:
        failed = [ended.failure_class for ended in self._folder.attempts(self._rollout_id) if ended.failure_class]
        if not failed:
            return f"the worker process died in each of {attempts} attempts"
        how, died = ", ".join(sorted(set(failed))), attempts - len(failed)
        if died <= 0:
            return f"each of {attempts} attempts failed ({how}), and then the worker process died"
        return f"the worker process died in {died} of {attempts} attempts; the others failed ({how})"
