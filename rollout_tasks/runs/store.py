"""The run store: what Redis knows of a run while it is under way. The run's folder (folder.py) is what remains.

Keys of one run, all under the tag ``{run:ID}``: the hash itself (state, configuration, total), ``:items``, ``:pending``
(rollouts without a verdict), ``:attempts``, ``:holders`` and ``:alive`` (who runs what, and when it last said so), ``:results``,
``:counts``. Each change of more than one of them is one script in lua/.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.redis_client import Scripts
from rollout_tasks.runs.states import Commit, Progress, RunState, Start
from rollout_tasks.runs.verdict import Verdict, split_rollout_id

ACTIVE_RUNS = "runs:active"
KEEP_SECONDS = 7 * 86_400
"""How long a finished run stays in Redis, for --status; its folder stays for ever."""
SILENT_SECONDS = 15.0
"""Without a beat for this long, a rollout's holder counts as dead."""
_CHUNK = 1_000


class RunStore:
    """One Redis's runs. Every method may be repeated after a lost reply."""

    def __init__(self, client: redis.Redis, *, silent_seconds: float = SILENT_SECONDS) -> None:
        self.client = client
        self.silent_seconds = silent_seconds
        self._scripts = Scripts("rollout_tasks.runs.lua")

    # -- submitting -------------------------------------------------------------------------------------------------

    def create(self, run_id: str, config: RunConfig, folder: str, rollouts: int, queues: Iterable[str] = ()) -> bool:
        """Reserves the run's id; False when it is taken."""
        fields = {
            "config": config.model_dump_json(exclude_defaults=True),
            "folder": folder,
            "total": rollouts,
            "max_attempts": config.max_attempts,
            "queues": " ".join(queues),
            "created": time.time(),
        }
        words = [word for field in fields.items() for word in field]
        return bool(
            self._scripts.run(self.client, "create", [_key(run_id), ACTIVE_RUNS], [run_id, uuid.uuid4().hex, *words])
        )

    def add_items(self, run_id: str, items: Iterable[Item], rollout_ids: Iterable[str]) -> None:
        """Stores items, and the rollouts that still need a verdict."""
        key = _key(run_id)
        for chunk in _chunks(items):
            documents = {
                item.id: json.dumps(item.as_dict(), ensure_ascii=False, separators=(",", ":")) for item in chunk
            }
            self.client.hset(f"{key}:items", mapping=documents)
        for names in _chunks(rollout_ids):
            self.client.sadd(f"{key}:pending", *names)

    def add_results(self, run_id: str, verdicts: Iterable[Verdict]) -> None:
        """Puts back verdicts that a run's folder holds, when a run is resumed."""
        key = _key(run_id)
        for chunk in _chunks(verdicts):
            self.client.hset(f"{key}:results", mapping={verdict.rollout_id: _stored(verdict) for verdict in chunk})
            with self.client.pipeline(transaction=False) as pipe:
                for verdict in chunk:
                    pipe.hincrby(f"{key}:counts", verdict.status, 1)
                    if verdict.failure_class:
                        pipe.hincrby(f"{key}:counts", f"class:{verdict.failure_class}", 1)
                    if verdict.score is not None:
                        pipe.hincrbyfloat(f"{key}:counts", "score", verdict.score)
                pipe.execute()

    def submitter_lives(self, run_id: str) -> None:
        """Says that the run is still being submitted."""
        self.client.hset(_key(run_id), "submitter_beat", time.time())

    def submitter_silent(self, run_id: str) -> float:
        """Seconds since the submitter last said so."""
        values: Any = self.client.hmget(_key(run_id), ["submitter_beat", "created"])
        return time.time() - max(float(value or 0.0) for value in values)

    def spend_chord(self, run_id: str) -> None:
        """Makes the last commit ask for the run to be finalised, because no chord will."""
        self.client.hset(_key(run_id), "chord_spent", "1")

    def mark_submitted(self, run_id: str) -> None:
        """From now on the run is the workers'."""
        self._scripts.run(self.client, "change_state", [_key(run_id)], ["running", "submitting"])

    def set_draining(self, run_id: str) -> None:
        """Rollouts that have not begun are left for a resume; running ones finish."""
        self._scripts.run(self.client, "change_state", [_key(run_id)], ["draining", "submitting", "running"])

    def forget(self, run_id: str) -> None:
        """Removes every key of a run."""
        key = _key(run_id)
        parts = ("", ":items", ":pending", ":attempts", ":alive", ":holders", ":results", ":counts", ":suspects")
        self.client.delete(*(key + part for part in parts))
        self.client.srem(ACTIVE_RUNS, run_id)

    # -- rolling out ------------------------------------------------------------------------------------------------

    def start(
        self,
        run_id: str,
        rollout_id: str,
        holder: Mapping[str, Any],
        *,
        after: int = 0,
        dead_holder: str = "",
    ) -> Start:
        """Claims a rollout and counts an attempt.

        Args:
            run_id: The run.
            rollout_id: The rollout.
            holder: Who claims it; its ``token`` names this execution and no other.
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
        ]
        status, attempt, document, silent, created = self._scripts.run(self.client, "start", [_key(run_id)], arguments)
        if status in {"busy", "superseded"}:
            return Start(status, attempt, holder=json.loads(document) if document else None, silent=float(silent))
        item = Item.from_dict(json.loads(document)) if document else None
        return Start(status, attempt, item=item, created=float(created))

    def beat(self, run_id: str, rollout_id: str, token: str) -> str:
        """Says that a rollout's holder lives; returns the run's state, ``superseded`` or ``unknown``."""
        return str(self._scripts.run(self.client, "beat", [_key(run_id)], [rollout_id, token]))

    def commit(self, run_id: str, verdict: Verdict, token: str) -> Commit:
        """Records a verdict if its execution still holds the rollout and nobody was first."""
        failure = verdict.failure_class or ""
        score = "" if verdict.score is None else repr(verdict.score)
        arguments = [verdict.rollout_id, token, _stored(verdict, token=token), verdict.status, failure, score]
        outcome, left, finalize = self._scripts.run(self.client, "commit", [_key(run_id)], arguments)
        return Commit(outcome, left, bool(finalize))

    # -- ending -----------------------------------------------------------------------------------------------------

    def cancel(self, run_id: str) -> tuple[str, int, int]:
        """Cancels; returns the state found, the rollouts cancelled at once and those still being stopped."""
        verdict = Verdict("", 0, "cancelled", failure_class=FailureClass.CANCELLED, error="the run was cancelled")
        found, cancelled, left = self._scripts.run(
            self.client, "cancel", [_key(run_id)], [_stored(verdict, token=""), self.silent_seconds]
        )
        return str(found), int(cancelled), int(left)

    def begin_finalize(self, run_id: str, token: str, *, silent_seconds: float) -> str:
        """Claims the finalising: ``go``, ``incomplete``, ``busy``, ``over`` or ``unknown``."""
        return str(self._scripts.run(self.client, "begin_finalize", [_key(run_id)], [token, silent_seconds]))

    def beat_finalize(self, run_id: str, token: str) -> str:
        """Says that a run's finaliser lives; returns ``finalizing``, ``superseded`` or ``unknown``."""
        return str(self._scripts.run(self.client, "beat_finalize", [_key(run_id)], [token]))

    def finalizer_silent(self, run_id: str) -> float:
        """Seconds since the run's finaliser last said that it lives; infinite when nobody finalises the run."""
        with self.client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hmget(_key(run_id), ["state", "finalizer_beat"])
            (seconds, microseconds), (state, beat) = pipe.execute()
        if state != "finalizing":
            return math.inf
        return float(seconds) + float(microseconds) / 1e6 - float(beat or 0.0)

    def end_finalize(self, run_id: str, token: str, finished: str, problem: str = "") -> str:
        """Marks the run as over, with the reason why it has no report if so; returns its final state or ``superseded``."""
        arguments = [token, run_id, KEEP_SECONDS, finished, problem]
        return str(self._scripts.run(self.client, "end_finalize", [_key(run_id), ACTIVE_RUNS], arguments))

    # -- looking ----------------------------------------------------------------------------------------------------

    def state(self, run_id: str) -> RunState | None:
        """The run's state; None when Redis does not know the run."""
        state: Any = self.client.hget(_key(run_id), "state")
        return state  # type: ignore[no-any-return]

    def active(self) -> list[str]:
        """Ids of the runs that are not over."""
        members: Any = self.client.smembers(ACTIVE_RUNS)
        return sorted(members)

    def config(self, run_id: str) -> tuple[RunConfig, str]:
        """The run's configuration and folder.

        Raises:
            KeyError: Redis does not know the run.
        """
        values: Any = self.client.hmget(_key(run_id), ["config", "folder"])
        if values[0] is None:
            raise KeyError(run_id)
        return RunConfig.model_validate(json.loads(values[0])), str(values[1])

    def progress(self, run_id: str) -> Progress | None:
        """How far the run is; None when Redis does not know it."""
        key = _key(run_id)
        with self.client.pipeline(transaction=False) as pipe:
            pipe.hmget(key, ["state", "total", "created", "queues", "problem"])
            pipe.scard(f"{key}:pending")
            pipe.zcount(f"{key}:alive", time.time() - self.silent_seconds, "+inf")
            pipe.hgetall(f"{key}:counts")
            (state, total, created, queues, problem), pending, running, counts = pipe.execute()
        if state is None:
            return None
        failures = {name.removeprefix("class:"): int(n) for name, n in counts.items() if name.startswith("class:")}
        return Progress(
            run_id=run_id,
            state=state,
            total=int(total or 0),
            pending=pending,
            running=running,
            completed=int(counts.get("completed", 0)),
            failed=int(counts.get("failed", 0)),
            cancelled=int(counts.get("cancelled", 0)),
            failures=dict(sorted(failures.items())),
            score_sum=float(counts.get("score", 0.0)),
            created=float(created or 0.0),
            queues=tuple((queues or "").split()),
            problem=problem or "",
        )

    def items(self, run_id: str) -> Iterator[Item]:
        """The run's items, in no particular order."""
        for _, document in self.client.hscan_iter(f"{_key(run_id)}:items", count=_CHUNK):
            yield Item.from_dict(json.loads(document))

    def items_of(self, run_id: str, rollout_ids: Iterable[str]) -> Iterator[Item]:
        """The items of some rollouts."""
        for names in _chunks(sorted({split_rollout_id(name)[0] for name in rollout_ids})):
            documents: Any = self.client.hmget(f"{_key(run_id)}:items", names)
            for document in documents:
                if document is not None:
                    yield Item.from_dict(json.loads(document))

    def verdicts(self, run_id: str) -> Iterator[Verdict]:
        """What is committed, in no particular order."""
        seen: set[str] = set()
        for rollout_id, document in self.client.hscan_iter(f"{_key(run_id)}:results", count=_CHUNK):
            if rollout_id not in seen:
                seen.add(rollout_id)
                yield Verdict.from_json(document, rollout_id=rollout_id)

    def running(self, run_id: str) -> int:
        """Rollouts that somebody is at work on."""
        count: Any = self.client.zcount(f"{_key(run_id)}:alive", time.time() - self.silent_seconds, "+inf")
        return int(count)

    def unheld(self, run_id: str) -> list[str]:
        """Rollouts without a verdict that nobody has claimed lately."""
        key = _key(run_id)
        fresh = time.time() - self.silent_seconds
        held: Any = self.client.zrangebyscore(f"{key}:alive", fresh, "+inf")
        pending: Any = self.client.smembers(f"{key}:pending")
        return sorted(set(pending) - set(held))


def _key(run_id: str) -> str:
    return f"{{run:{run_id}}}"


def _stored(verdict: Verdict, *, token: str = "") -> str:
    """The verdict as Redis keeps it: the rollout's id is already its field."""
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
