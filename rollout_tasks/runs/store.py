"""The run store: a run's state in Redis while it is under way. The run's folder (folder.py) is what remains.

Its keys are in store_format.py; a submitter fills them (submission_store.py). ``:pending`` and ``:results`` together
always are what is stored, and the run is complete when ``:results`` alone has as many entries as the run's ``total``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.per_process import per_process
from rollout_tasks.redis_client import worker_client
from rollout_tasks.runs.states import Cancellation, Claim, Commit, Progress, RunState
from rollout_tasks.runs.store_format import (
    ACTIVE_RUNS,
    CHUNK,
    SCRIPTS,
    VERSION,
    UnreadableRun,
    chunks,
    run_key,
    stored_cost,
    stored_verdict,
    too_new,
)
from rollout_tasks.runs.stored_profile import check_stored
from rollout_tasks.runs.verdict import Verdict, cancelled_verdict, split_rollout_id
from rollout_tasks.settings import settings

KEEP_SECONDS = 7 * 86_400
"""How long a finished run stays in Redis, for `rollouts status`; its folder stays for ever."""
_SUBMITTER_SILENT = 4
"""A submitter may be silent this many times as long as a rollout's holder before it counts as dead."""


class RunStore:
    """The runs in one Redis. Every method may be repeated after a lost reply."""

    def __init__(self, client: redis.Redis, *, silent_seconds: float | None = None) -> None:
        """Sends nothing yet.

        Args:
            client: The client of that Redis.
            silent_seconds: How long a rollout's holder may be silent before it counts as dead; default: as configured.
        """
        self.client = client
        self.silent_seconds = settings().silent_seconds if silent_seconds is None else silent_seconds

    @property
    def submitter_silent_seconds(self) -> float:
        """How long a submitter may be silent before it counts as dead, and its run can be resumed."""
        return _SUBMITTER_SILENT * self.silent_seconds

    # -- states -----------------------------------------------------------------------------------------------------

    def adopt(self, run_id: str) -> RunState | None:
        """Decides the state of a run whose submitter has died.

        Returns:
            The run's state: ``running`` when everything was stored, ``half_submitted`` when not, ``submitting`` while the
            submitter lives; any other state unchanged; None when Redis does not know the run.
        """
        state: RunState | None = SCRIPTS.run(self.client, "adopt", [run_key(run_id)], [self.submitter_silent_seconds])
        return state

    def finalize_by_last_commit(self, run_id: str) -> None:
        """Makes the last commit ask for the run to be finalised, because no chord will."""
        SCRIPTS.run(self.client, "finalize_by_last_commit", [run_key(run_id)], [])

    def set_draining(self, run_id: str) -> None:
        """Drains the run: rollouts that have not begun are left for a resume; running ones finish."""
        SCRIPTS.run(self.client, "change_state", [run_key(run_id)], ["draining", "submitting", "running"])

    def forget(self, run_id: str, *states: RunState, submission: str = "") -> bool:
        """Removes every key of a run.

        Args:
            run_id: The run.
            states: The states it may be in.
            submission: The token of the submission that it must belong to, if not to any.

        Returns:
            False when it is in another state, or another submission's.
        """
        return bool(SCRIPTS.run(self.client, "forget", [run_key(run_id), ACTIVE_RUNS], [run_id, submission, *states]))

    def retire(self, run_id: str) -> None:
        """Takes a run from the active ones, unless it goes on, as one that was resumed just now does."""
        SCRIPTS.run(self.client, "retire", [run_key(run_id), ACTIVE_RUNS], [run_id])

    # -- rolling out ------------------------------------------------------------------------------------------------

    def claim(
        self,
        run_id: str,
        rollout_id: str,
        holder: Mapping[str, Any],
        *,
        after: int = 0,
        dead_holder: str = "",
    ) -> Claim:
        """Claims a rollout and counts an attempt.

        Args:
            run_id: The run.
            rollout_id: The rollout.
            holder: Describes who claims it; its ``token`` is unique to this execution.
            after: The attempt this execution has just ended, to begin another; 0 at first.
            dead_holder: Token of a holder that the caller knows to be dead.
        """
        item_id, _ = split_rollout_id(rollout_id)
        description = json.dumps(dict(holder), separators=(",", ":"))
        arguments = [
            rollout_id,
            item_id,
            holder["token"],
            description,
            after,
            self.silent_seconds,
            dead_holder,
            VERSION,
        ]
        status, attempt, document, silent, created = SCRIPTS.run(self.client, "claim", [run_key(run_id)], arguments)
        if status in {"busy", "superseded"}:
            return Claim(status, attempt, holder=json.loads(document) if document else None, silent=float(silent))
        item = Item.from_dict(json.loads(document)) if document else None
        return Claim(status, attempt, item=item, created=float(created))

    def uncount(self, run_id: str, rollout_id: str, token: str, attempt: int) -> bool:
        """Uncounts an attempt that says nothing about the agent; its execution keeps the claim and starts again.

        Returns:
            Whether this execution held the claim.
        """
        return bool(SCRIPTS.run(self.client, "uncount", [run_key(run_id)], [rollout_id, token, attempt]))

    def hand_back(self, run_id: str, rollout_id: str, token: str, *, counted: bool = True) -> bool:
        """Gives a claim back before its attempt is over; uncounts the attempt if it is `counted` so far.

        Returns:
            Whether this execution held the claim.
        """
        arguments = [rollout_id, token, "1" if counted else "0"]
        return bool(SCRIPTS.run(self.client, "hand_back", [run_key(run_id)], arguments))

    def beat(self, run_id: str, rollout_id: str, token: str) -> str:
        """Records that a rollout's holder lives; returns the run's state, ``superseded`` or ``unknown``."""
        return str(SCRIPTS.run(self.client, "beat", [run_key(run_id)], [rollout_id, token]))

    def commit(self, run_id: str, verdict: Verdict, token: str) -> Commit:
        """Records a verdict if its execution still holds the rollout and there is no earlier verdict.

        The run's cost grows by the verdict's, less what `add_spent` has counted already.
        """
        failure = verdict.failure_class or ""
        score = "" if verdict.score is None else repr(verdict.score)
        stored = stored_verdict(verdict, token=token)
        costs = [stored_cost(verdict.total_cost), stored_cost(verdict.earlier_cost)]
        arguments = [verdict.rollout_id, token, stored, verdict.status, failure, score, *costs]
        outcome, left, finalize, reached_max_cost = SCRIPTS.run(self.client, "commit", [run_key(run_id)], arguments)
        return Commit(outcome, left, bool(finalize), bool(reached_max_cost))

    # -- ending -----------------------------------------------------------------------------------------------------

    def cancel(
        self, run_id: str, was_begun: Callable[[str], bool] | None = None, *, why: str = "the run was cancelled"
    ) -> Cancellation:
        """Cancels rollouts that nobody has begun; running ones hear of it at their next beat. See `execution.cancellation`.

        Args:
            run_id: The run.
            was_begun: Whether the run's folder shows that a rollout was begun: a server that came back without its last
                second may not know it. Asked of each rollout that is left, when no more are begun.
            why: What the rollouts that are cancelled say.
        """
        state_found, created = SCRIPTS.run(self.client, "begin_cancel", [run_key(run_id)], [])
        if was_begun is not None:
            self._note_begun(run_id, was_begun)
        document = stored_verdict(cancelled_verdict("", why))
        problem = "it was half-submitted and then cancelled"
        cursor, cancelled, begun = "0", 0, set[str]()
        while True:
            arguments = [document, self.silent_seconds, cursor, CHUNK, run_id, KEEP_SECONDS, problem, created]
            _, more, left, cursor, names = SCRIPTS.run(self.client, "cancel", [run_key(run_id), ACTIVE_RUNS], arguments)
            cancelled += int(more)
            begun.update(names)
            if cursor == "0":
                return Cancellation(str(state_found), cancelled, int(left), sorted(begun))

    def _note_begun(self, run_id: str, was_begun: Callable[[str], bool]) -> None:
        for names in chunks(self.client.sscan_iter(f"{run_key(run_id)}:pending", count=CHUNK)):
            begun = [name for name in names if was_begun(name)]
            if begun:
                SCRIPTS.run(self.client, "note_begun", [run_key(run_id)], begun)

    def begin_finalize(self, run_id: str, token: str, *, silent_seconds: float) -> str:
        """Claims the finalising; returns ``go``, ``incomplete``, ``busy``, ``over`` or ``unknown``."""
        return str(SCRIPTS.run(self.client, "begin_finalize", [run_key(run_id)], [token, silent_seconds]))

    def beat_finalize(self, run_id: str, token: str) -> str:
        """Records that a run's finaliser lives; returns ``finalizing``, ``superseded`` or ``unknown``."""
        return str(SCRIPTS.run(self.client, "beat_finalize", [run_key(run_id)], [token]))

    def finalizer_silent(self, run_id: str) -> float:
        """Returns the seconds since the finaliser's last heartbeat; infinite when nobody finalises the run."""
        silent = str(SCRIPTS.run(self.client, "finalizer_silence", [run_key(run_id)], []))
        return math.inf if silent == "none" else float(silent)

    def end_finalize(self, run_id: str, token: str, finished: str, problem: str = "") -> str:
        """Marks the run as over, with the reason if it has no report; returns its final state or ``superseded``."""
        arguments = [token, run_id, KEEP_SECONDS, finished, problem]
        return str(SCRIPTS.run(self.client, "end_finalize", [run_key(run_id), ACTIVE_RUNS], arguments))

    # -- looking ----------------------------------------------------------------------------------------------------

    def state(self, run_id: str) -> RunState | None:
        """Returns the run's state; None when Redis does not know the run."""
        state: Any = self.client.hget(run_key(run_id), "state")
        return state  # type: ignore[no-any-return]

    def folder(self, run_id: str) -> str:
        """Returns the path of the run's folder; empty when Redis does not know the run."""
        folder: Any = self.client.hget(run_key(run_id), "folder")
        return str(folder or "")

    def active(self) -> list[str]:
        """Returns the ids of the runs that are not over."""
        members: Any = self.client.smembers(ACTIVE_RUNS)
        return sorted(members)

    def config(self, run_id: str) -> tuple[RunConfig, str]:
        """Returns the run's configuration and folder.

        Raises:
            KeyError: Redis does not know the run.
            UnreadableRun: It was stored by a newer version of this software, or its configuration is broken.
        """
        values: Any = self.client.hmget(run_key(run_id), ["config", "folder", "min_version"])
        document, folder, version = values
        if document is None:
            raise KeyError(run_id)
        if int(version or 1) > VERSION:
            raise UnreadableRun(too_new(run_id))
        try:
            config = RunConfig.model_validate(json.loads(document))
            check_stored(config)
            return config, str(folder)
        except (ValueError, UserError) as error:
            first = str(error).splitlines()[0]
            raise UnreadableRun(f"run {run_id}: its stored configuration cannot be read here: {first}") from error

    def progress(self, run_id: str) -> Progress | None:
        """Returns the run's progress; None when Redis does not know the run."""
        found = SCRIPTS.run(self.client, "progress", [run_key(run_id)], [self.silent_seconds])
        if not found:
            return None
        state, total, created, queues, problem, pending, committed, running, words = found
        counts = dict(zip(words[::2], words[1::2], strict=True))
        failures = {name.removeprefix("class:"): int(n) for name, n in counts.items() if name.startswith("class:")}
        return Progress(
            run_id=run_id,
            state=state,
            total=int(total),
            pending=pending,
            committed=committed,
            running=running,
            completed=int(counts.get("completed", 0)),
            failed=int(counts.get("failed", 0)),
            cancelled=int(counts.get("cancelled", 0)),
            failures=dict(sorted(failures.items())),
            score_sum=float(counts.get("score", 0.0)),
            cost=float(counts["cost"]) if "cost" in counts else None,
            created=float(created),
            queues=tuple(queues.split()),
            problem=problem,
        )

    def items(self, run_id: str) -> Iterator[Item]:
        """Yields the run's items in no particular order."""
        for _, document in self.client.hscan_iter(f"{run_key(run_id)}:items", count=CHUNK):
            yield Item.from_dict(json.loads(document))

    def items_of(self, run_id: str, rollout_ids: Iterable[str]) -> Iterator[Item]:
        """Yields the items of some rollouts."""
        for names in chunks(sorted({split_rollout_id(name)[0] for name in rollout_ids})):
            documents: Any = self.client.hmget(f"{run_key(run_id)}:items", names)
            for document in documents:
                if document is not None:
                    yield Item.from_dict(json.loads(document))

    def verdicts(self, run_id: str) -> Iterator[Verdict]:
        """Yields the committed verdicts in no particular order."""
        seen: set[str] = set()
        for rollout_id, document in self.client.hscan_iter(f"{run_key(run_id)}:results", count=CHUNK):
            if rollout_id not in seen:
                seen.add(rollout_id)
                yield Verdict.from_json(document, rollout_id=rollout_id)

    def verdicts_of(self, run_id: str, rollout_ids: Sequence[str]) -> list[Verdict | None]:
        """Returns the committed verdicts of some rollouts, in their order; None for those without one."""
        documents: Any = self.client.hmget(f"{run_key(run_id)}:results", rollout_ids)
        return [
            None if document is None else Verdict.from_json(document, rollout_id=rollout_id)
            for rollout_id, document in zip(rollout_ids, documents, strict=True)
        ]

    def count_items(self, run_id: str) -> int:
        """Returns how many items are stored."""
        count: Any = self.client.hlen(f"{run_key(run_id)}:items")
        return int(count)

    def running(self, run_id: str) -> int:
        """Returns how many rollouts are being worked on."""
        progress = self.progress(run_id)
        return progress.running if progress is not None else 0


@per_process
def run_store() -> RunStore:
    """Returns the run store as a worker uses it: it waits while Redis is unavailable."""
    return RunStore(worker_client())
