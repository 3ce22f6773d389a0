"""Storing a run that is being submitted; from then on, `store` has it.

A run is submitted in two steps. First everything is stored; if the submitter dies before that is done, the run is
``half_submitted``, and no message was sent. Then messages are sent; from here on the workers do not need the submitter.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import wait_until_durable
from rollout_tasks.runs.store_format import (
    ACTIVE_RUNS,
    CHUNK,
    MIN_VERSION,
    SCRIPTS,
    VERSION,
    chunks,
    run_key,
    stored_cost,
    stored_verdict,
)
from rollout_tasks.runs.verdict import Verdict

SUBMITTER_BEAT_SECONDS = 5.0
_CHUNK_CHARACTERS = 4_000_000
"""Characters of items stored at a time; other commands wait while the server stores them."""


def reserve(
    client: redis.Redis,
    run_id: str,
    config: RunConfig,
    folder: str,
    rollouts: int,
    queues: Iterable[str] = (),
    *,
    token: str = "",
) -> StoredSubmission | None:
    """Reserves a run's id.

    Args:
        client: The client of the Redis that is to have the run.
        run_id: The run.
        config: Its configuration.
        folder: Its folder.
        rollouts: How many it has, including those that a resumed run keeps.
        queues: The queues of its rollouts.
        token: The submission's token, to repeat this after a lost reply; generated when empty.

    Returns:
        The submission, to add to the run; None when the id is taken.
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
    created = SCRIPTS.run(client, "create", [run_key(run_id), ACTIVE_RUNS], [run_id, token, *words])
    return StoredSubmission(client, run_id, token) if created else None


class StoredSubmission:
    """One submission of a run: adds to the run until another one takes its place. Every method may be repeated.

    Args:
        client: The client of the Redis that has the run.
        run_id: The run.
        token: Tells it from other submissions of the same run.
    """

    def __init__(self, client: redis.Redis, run_id: str, token: str) -> None:
        self.token = token
        self._client = client
        self._run_id = run_id

    def using(self, client: redis.Redis) -> StoredSubmission:
        """Returns the same submission, with another client of that Redis."""
        return StoredSubmission(client, self._run_id, self.token)

    def add_items(self, items: Iterable[Item], rollout_ids: Iterable[str]) -> None:
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
            if len(words) >= CHUNK or size >= _CHUNK_CHARACTERS:
                self._add("items", words)
                words, size = [], 0
        if words:
            self._add("items", words)
        for names in chunks(rollout_ids):
            self._add("pending", names)

    def add_results(self, verdicts: Iterable[Verdict]) -> None:
        """Stores the verdicts that a resumed run's folder already has.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        for chunk in chunks(verdicts):
            words: list[str] = []
            for verdict in chunk:
                score = "" if verdict.score is None else repr(verdict.score)
                failure, cost = verdict.failure_class or "", stored_cost(verdict.total_cost)
                words += [verdict.rollout_id, stored_verdict(verdict), verdict.status, failure, score, cost]
            self._add("results", words)

    def add_spent(self, spent: Iterable[tuple[str, float]]) -> None:
        """Stores the dollars for earlier attempts of the rollouts that a resumed run tries again.

        They are a part of the run's cost from now on, and are not added again with the rollouts' verdicts.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        for chunk in chunks(spent):
            self._add("spent", [word for name, cost in chunk for word in (name, repr(cost))])

    def submitter_lives(self) -> None:
        """Records that the run's submitter lives."""
        self._add("beat", [])

    def _add(self, what: str, words: list[str]) -> None:
        state = SCRIPTS.run(self._client, "add", [run_key(self._run_id)], [self.token, what, *words])
        if state != "submitting":
            raise UserError(f"run {self._run_id} cannot be submitted any further: {_why_not(state)}")

    def everything_stored(self) -> bool:
        """Returns whether the store has every rollout of the run; False when the server has lost some.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        return self._submitted("stored") != "incomplete"

    def everything_sent(self) -> bool:
        """Hands the run over to the workers; returns False as `everything_stored` does.

        Raises:
            UserError: The run no longer belongs to this submission.
        """
        return self._submitted("sent") != "incomplete"

    def _submitted(self, what: str) -> str:
        state = str(SCRIPTS.run(self._client, "submitted", [run_key(self._run_id)], [self.token, what]))
        if state in {"unknown", "superseded"}:
            raise UserError(f"run {self._run_id} cannot be submitted any further: {_why_not(state)}")
        return state

    def wait_until_durable(self) -> None:
        """Waits a few seconds at most until the server's disk has what was stored, if it keeps an append-only file."""
        wait_until_durable(self._client)


def _why_not(state: str) -> str:
    return {
        "superseded": "it has been submitted again meanwhile",
        "unknown": "Redis does not know it (any more)",
        "cancelling": "it was cancelled",
        "cancelled": "it was cancelled",
    }.get(state, f"it is {state} already")
