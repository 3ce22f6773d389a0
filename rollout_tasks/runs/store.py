"""The run store: a run's state in Redis while it is under way. The run's folder (folder.py) is what remains.

Keys of one run, all under the tag ``{run:ID}``: the hash itself (state, configuration, total), ``:items``, ``:pending``
(rollouts without a verdict), ``:attempts``, ``:holders`` and ``:alive`` (who runs what, and the last heartbeat),
``:results``, ``:counts``, ``:spent`` (what rollouts cost before a resume). A change of more than one of them is one script in
lua/. All times in them are the server's.

A run is submitted in two steps. First everything is stored; if the submitter dies before that is done, the run is
``half_submitted``, and no message was sent. Then messages are sent; from here on the workers do not need the submitter.
``:pending`` and ``:results`` together always are what is stored, and the run is complete when ``:results`` alone has as
many entries as the run's ``total``.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.per_process import per_process
from rollout_tasks.redis_client import LuaScripts, worker_client
from rollout_tasks.runs.states import Cancellation, Claim, Commit, Progress, RunState
from rollout_tasks.runs.verdict import Verdict, cancelled_verdict, split_rollout_id
from rollout_tasks.settings import settings

ACTIVE_RUNS = "runs:active"
SCRIPTS = LuaScripts(Path(__file__).with_name("lua"))
KEEP_SECONDS = 7 * 86_400
"""How long a finished run stays in Redis, for `rollouts status`; its folder stays for ever."""
VERSION = 1
"""Version of stored runs and messages that this code writes, and the latest that it understands."""
MIN_VERSION = 1
"""The oldest version that can work on what this code writes: workers of two versions may share a broker."""
SUBMITTER_BEAT_SECONDS = 5.0
_SUBMITTER_SILENT = 4
"""A submitter may be silent this many times as long as a rollout's holder before it counts as dead."""
_DURABLE_MILLISECONDS = 3_000
"""How long a submission waits until the server has written it to disk: three times what everysec takes."""
_CHUNK = 1_000
_CHUNK_CHARACTERS = 4_000_000
"""Characters of items stored at a time; other commands wait while the server stores them."""


class UnreadableRun(UserError):
    """A stored run that this version cannot work on; the message says which and why."""


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

    # -- submitting -------------------------------------------------------------------------------------------------

    def create(
        self, run_id: str, config: RunConfig, folder: str, rollouts: int, queues: Iterable[str] = (), *, token: str = ""
    ) -> str:
        """Reserves the run's id.

        Args:
            run_id: The run.
            config: Its configuration.
            folder: Its folder.
            rollouts: How many it has, including those that a resumed run keeps.
            queues: The queues of its rollouts.
            token: The submission's token; generated when empty.

        Returns:
            The submission's token, needed to add to the run; empty when the id is taken.
        """
        token = token or uuid.uuid4().hex
        fields = {
            "config": config.model_dump_json(exclude_defaults=True, exclude={"data"}),  # workers need no data
            "folder": folder,
            "total": rollouts,
            "max_attempts": config.max_attempts,
            "queues": " ".join(queues),
            "max_cost": "" if config.max_cost is None else repr(config.max_cost),
            "version": VERSION,
            "min_version": MIN_VERSION,
        }
        words = [word for field in fields.items() for word in field]
        created = SCRIPTS.run(self.client, "create", [run_key(run_id), ACTIVE_RUNS], [run_id, token, *words])
        return token if created else ""

    def add_items(self, run_id: str, token: str, items: Iterable[Item], rollout_ids: Iterable[str]) -> None:
        """Stores items, and the rollouts that still need a verdict.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        words: list[str] = []
        size = 0
        for item in items:
            document = json.dumps(item.as_dict(), ensure_ascii=False, separators=(",", ":"))
            words += [item.id, document]
            size += len(document)
            if len(words) >= _CHUNK or size >= _CHUNK_CHARACTERS:
                self._add(run_id, token, "items", words)
                words, size = [], 0
        if words:
            self._add(run_id, token, "items", words)
        for names in _chunks(rollout_ids):
            self._add(run_id, token, "pending", names)

    def add_results(self, run_id: str, token: str, verdicts: Iterable[Verdict]) -> None:
        """Stores the verdicts that a resumed run's folder already has.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        for chunk in _chunks(verdicts):
            words: list[str] = []
            for verdict in chunk:
                score = "" if verdict.score is None else repr(verdict.score)
                failure, cost = verdict.failure_class or "", _cost(verdict)
                words += [verdict.rollout_id, _stored(verdict), verdict.status, failure, score, cost]
            self._add(run_id, token, "results", words)

    def add_spent(self, run_id: str, token: str, spent: Iterable[tuple[str, float]]) -> None:
        """Stores the dollars for earlier attempts of the rollouts that a resumed run tries again.

        They are a part of the run's cost from now on, and are not added again with the rollouts' verdicts.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        for chunk in _chunks(spent):
            self._add(run_id, token, "spent", [word for name, cost in chunk for word in (name, repr(cost))])

    def submitter_lives(self, run_id: str, token: str) -> None:
        """Records that the run's submitter lives."""
        self._add(run_id, token, "beat", [])

    def _add(self, run_id: str, token: str, what: str, words: list[str]) -> None:
        state = SCRIPTS.run(self.client, "add", [run_key(run_id)], [token, what, *words])
        if state != "submitting":
            raise UserError(f"run {run_id} cannot be submitted any further: {_why_not(state)}")

    def everything_stored(self, run_id: str, token: str) -> bool:
        """Returns whether the store has every rollout of the run; False when the server has lost some.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        return self._submitted(run_id, token, "stored") != "incomplete"

    def everything_sent(self, run_id: str, token: str) -> bool:
        """Hands the run over to the workers; returns False as `everything_stored` does.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        return self._submitted(run_id, token, "sent") != "incomplete"

    def _submitted(self, run_id: str, token: str, what: str) -> str:
        state = str(SCRIPTS.run(self.client, "submitted", [run_key(run_id)], [token, what]))
        if state in {"unknown", "superseded"}:
            raise UserError(f"run {run_id} cannot be submitted any further: {_why_not(state)}")
        return state

    def wait_until_durable(self) -> None:
        """Waits a few seconds at most until the server's disk has what was stored, if it keeps an append-only file."""
        with suppress(redis.ResponseError):  # an older server, or one without such a file
            self.client.waitaof(1, 0, _DURABLE_MILLISECONDS)

    def adopt(self, run_id: str) -> RunState | None:
        """Decides the state of a run whose submitter has died.

        Returns:
            The run's state: ``running`` when everything was stored, ``half_submitted`` when not, ``submitting`` while the
            submitter lives; any other state unchanged; None when Redis does not know the run.
        """
        silent = _SUBMITTER_SILENT * self.silent_seconds
        state: RunState | None = SCRIPTS.run(self.client, "adopt", [run_key(run_id)], [silent])
        return state

    def finalize_by_last_commit(self, run_id: str) -> None:
        """Makes the last commit ask for the run to be finalised, because no chord will."""
        self.client.hset(run_key(run_id), "chord_spent", "1")

    def set_draining(self, run_id: str) -> None:
        """Drains the run: rollouts that have not begun are left for a resume; running ones finish."""
        SCRIPTS.run(self.client, "change_state", [run_key(run_id)], ["draining", "submitting", "running"])

    def forget(self, run_id: str, *states: RunState) -> bool:
        """Removes every key of a run.

        Args:
            run_id: The run.
            states: The states it may be in.

        Returns:
            False when it is in another state.
        """
        return bool(SCRIPTS.run(self.client, "forget", [run_key(run_id), ACTIVE_RUNS], [run_id, *states]))

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
        stored = _stored(verdict, token=token)
        arguments = [verdict.rollout_id, token, stored, verdict.status, failure, score, _cost(verdict)]
        outcome, left, finalize, reached_max_cost = SCRIPTS.run(self.client, "commit", [run_key(run_id)], arguments)
        return Commit(outcome, left, bool(finalize), bool(reached_max_cost))

    # -- ending -----------------------------------------------------------------------------------------------------

    def cancel(self, run_id: str, *, why: str = "the run was cancelled") -> Cancellation:
        """Cancels rollouts that nobody has begun; running ones hear of it at their next beat. See `execution.cancellation`."""
        document = _stored(cancelled_verdict("", why))
        problem = "it was half-submitted and then cancelled"
        cursor, state_found, cancelled, begun = "0", "", 0, set[str]()
        while True:
            arguments = [document, self.silent_seconds, cursor, _CHUNK, run_id, KEEP_SECONDS, problem]
            found, more, left, cursor, names = SCRIPTS.run(
                self.client, "cancel", [run_key(run_id), ACTIVE_RUNS], arguments
            )
            state_found = state_found or str(found)
            cancelled += int(more)
            begun.update(names)
            if cursor == "0":
                return Cancellation(state_found, cancelled, int(left), sorted(begun))

    def begin_finalize(self, run_id: str, token: str, *, silent_seconds: float) -> str:
        """Claims the finalising; returns ``go``, ``incomplete``, ``busy``, ``over`` or ``unknown``."""
        return str(SCRIPTS.run(self.client, "begin_finalize", [run_key(run_id)], [token, silent_seconds]))

    def beat_finalize(self, run_id: str, token: str) -> str:
        """Records that a run's finaliser lives; returns ``finalizing``, ``superseded`` or ``unknown``."""
        return str(SCRIPTS.run(self.client, "beat_finalize", [run_key(run_id)], [token]))

    def finalizer_silent(self, run_id: str) -> float:
        """Returns the seconds since the finaliser's last heartbeat; infinite when nobody finalises the run."""
        with self.client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hmget(run_key(run_id), ["state", "finalizer_beat"])
            (seconds, microseconds), (state, beat) = pipe.execute()
        if state != "finalizing":
            return math.inf
        return float(seconds) + float(microseconds) / 1e6 - float(beat or 0.0)

    def end_finalize(self, run_id: str, token: str, finished: str, problem: str = "") -> str:
        """Marks the run as over, with the reason if it has no report; returns its final state or ``superseded``."""
        arguments = [token, run_id, KEEP_SECONDS, finished, problem]
        return str(SCRIPTS.run(self.client, "end_finalize", [run_key(run_id), ACTIVE_RUNS], arguments))

    # -- looking ----------------------------------------------------------------------------------------------------

    def state(self, run_id: str) -> RunState | None:
        """Returns the run's state; None when Redis does not know the run."""
        state: Any = self.client.hget(run_key(run_id), "state")
        return state  # type: ignore[no-any-return]

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
            return RunConfig.model_validate(json.loads(document)), str(folder)
        except ValueError as error:
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
        for _, document in self.client.hscan_iter(f"{run_key(run_id)}:items", count=_CHUNK):
            yield Item.from_dict(json.loads(document))

    def items_of(self, run_id: str, rollout_ids: Iterable[str]) -> Iterator[Item]:
        """Yields the items of some rollouts."""
        for names in _chunks(sorted({split_rollout_id(name)[0] for name in rollout_ids})):
            documents: Any = self.client.hmget(f"{run_key(run_id)}:items", names)
            for document in documents:
                if document is not None:
                    yield Item.from_dict(json.loads(document))

    def verdicts(self, run_id: str) -> Iterator[Verdict]:
        """Yields the committed verdicts in no particular order."""
        seen: set[str] = set()
        for rollout_id, document in self.client.hscan_iter(f"{run_key(run_id)}:results", count=_CHUNK):
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


def too_new(run_id: str) -> str:
    """Returns the sentence about a run that this code is too old for."""
    return (
        f"run {run_id} was stored by a newer version of this software, whose runs this one (version {VERSION} of stored runs)"
        " cannot work on: update the software on this machine"
    )


@per_process
def run_store() -> RunStore:
    """Returns the run store as a worker uses it: it waits while Redis is unavailable."""
    return RunStore(worker_client())


def _why_not(state: str) -> str:
    return {
        "superseded": "it has been submitted again meanwhile",
        "unknown": "Redis does not know it (any more)",
        "cancelling": "it was cancelled",
        "cancelled": "it was cancelled",
    }.get(state, f"it is {state} already")


def run_key(run_id: str) -> str:
    """Returns the key of a run's hash; the names of its other keys begin with it."""
    return f"{{run:{run_id}}}"


def _cost(verdict: Verdict) -> str:
    return "" if verdict.total_cost is None else repr(verdict.total_cost)


def _stored(verdict: Verdict, *, token: str = "") -> str:
    """Returns the verdict as Redis stores it, without the rollout's id, which names the hash field."""
    values = verdict.as_dict()
    values.pop("rollout_id", None)
    values["token"] = token
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _chunks(entries: Iterable[Any]) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
