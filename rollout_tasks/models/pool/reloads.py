"""Changes of a pool's weights, in Redis: what was asked for, how far each replica is with it, and whose turn it is.

Whoever asks writes one document; those who run the replicas' servers see it, change one replica after the other, and say
how far each of them is. The last one that was asked for counts.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import redis
from redis.exceptions import LockError
from redis.lock import Lock

from rollout_tasks.models.pool.store_format import LONGEST_PATH, LONGEST_TEXT, checked_id, checked_text, pool_key
from rollout_tasks.redis_client import server_time

logger = logging.getLogger(__name__)

TURN_SECONDS = 60.0
"""How long a replica has its turn after it said so last."""
_LATER = 1e-5
"""Seconds; a clock that was set back must not make a change look older than the one before."""
_KEPT_SECONDS = 86_400
"""How long is known how far each replica came."""


class Stage(StrEnum):
    """How far a replica is."""

    WAITING = "waiting"
    """Another replica has its turn."""
    DRAINING = "draining"
    """It finishes the calls that it has."""
    LOADING = "loading"
    """Its server reads the checkpoint."""
    DONE = "done"
    REFUSED = "refused"
    """The checkpoint cannot be used; the replica goes on with the weights that it has, and no other one is tried."""
    UNCHANGED = "unchanged"
    """The replica goes on with the weights that it has, for another reason."""
    FAILED = "failed"
    """It did not work; the text says what became of the replica."""


ENDS = frozenset({Stage.DONE, Stage.REFUSED, Stage.UNCHANGED, Stage.FAILED})


@dataclass(frozen=True, slots=True)
class Reload:
    """A change of weights that was asked for."""

    reload_id: str
    checkpoint: str
    """A folder that each machine with servers sees."""
    weight_version: str
    in_flight: bool
    """Whether calls that are under way go on with the new weights; else they are finished first."""
    asked: float
    """When, in seconds since 1970 by Redis's clock: one that was asked for earlier than another counts no more."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replica is with one."""

    stage: Stage
    text: str = ""
    """What users read beside the stage."""


class Reloads:
    """The changes of one pool's weights."""

    def __init__(self, client: redis.Redis, pool: str) -> None:
        """Sends nothing yet.

        Args:
            client: A client that decodes replies.
            pool: The pool's name.

        Raises:
            ValueError: The name is not valid.
        """
        self.pool = pool
        self._client = client
        key = pool_key(pool)
        self._reload_key, self._told, self._turn, self._checksums = (
            f"{key}:{name}" for name in ("reload", "reloaded", "reloading", "checksums")
        )

    def ask(self, checkpoint: str, weight_version: str, *, in_flight: bool = False) -> Reload:
        """Asks for new weights in all replicas whose servers this project runs.

        Args:
            checkpoint: A folder that each machine with servers sees.
            weight_version: What is recorded with every reply from then on.
            in_flight: Whether calls that are under way go on with the new weights.

        Raises:
            ValueError: One of these cannot be stored; says which.
        """
        checked_text(checkpoint, "CHECKPOINT", longest=LONGEST_PATH)
        checked_text(weight_version, "--weight-version")
        while True:
            with self._client.pipeline() as pipeline:
                pipeline.watch(self._reload_key)  # type: ignore[no-untyped-call]  # of two at once, the later one has the later time
                before = self.wanted()
                requested_at = max(server_time(self._client), before.asked + _LATER if before else 0.0)
                reload = Reload(secrets.token_hex(8), checkpoint, weight_version, in_flight, requested_at)
                pipeline.multi()
                pipeline.delete(self._told, self._checksums)  # of those before
                pipeline.set(self._reload_key, json.dumps(asdict(reload)))
                with suppress(redis.WatchError):
                    pipeline.execute()
                    return reload

    def wanted(self) -> Reload | None:
        """Returns the last one that was asked for; None if there is none."""
        document: Any = self._client.get(self._reload_key)
        if document is None:
            return None
        try:
            return _parsed(json.loads(document))
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("model pool %s: the change of weights in Redis cannot be read: %s", self.pool, error)
            return None

    def tell(self, reload: Reload, replica_id: str, stage: Stage, text: str = "") -> None:
        """Says how far a replica is."""
        with self._client.pipeline() as pipeline:
            pipeline.hset(
                self._told, f"{reload.reload_id}/{replica_id}", json.dumps([stage.value, text[:LONGEST_TEXT]])
            )
            pipeline.expire(self._told, _KEPT_SECONDS)
            pipeline.execute()

    def progress(self, reload: Reload) -> Mapping[str, Progress]:
        """Returns how far the replicas are that have said it, by their ids."""
        told: Any = self._client.hgetall(self._told)
        found = {}
        for name, document in told.items():
            reload_id, _, replica_id = name.partition("/")
            if reload_id == reload.reload_id:
                with suppress(ValueError, TypeError):  # of a version to come
                    stage, text = json.loads(document)
                    found[replica_id] = Progress(Stage(stage), str(text))
        return found

    def turn(self) -> Turn:
        """Returns the turn of one replica: one at a time, wherever its server is."""
        return Turn(self._client.lock(self._turn, timeout=TURN_SECONDS, blocking=False, thread_local=False))

    def known_checksum(self, reload: Reload, held: str, checksum: str) -> str:
        """Returns the checksum of the first server that was given the weights: the given one if there was none before it.

        Args:
            reload: The change.
            held: Names how the server holds its weights.
            checksum: The one that it has.
        """
        field = f"{reload.reload_id}/{held}"
        with self._client.pipeline() as pipeline:
            pipeline.hsetnx(self._checksums, field, checksum)
            pipeline.expire(self._checksums, _KEPT_SECONDS)
            pipeline.hget(self._checksums, field)
            known: Any = pipeline.execute()[-1]
        return str(known or checksum)


class Turn:
    """The right to change a replica, which no other has meanwhile."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def take(self) -> bool:
        """Takes it, if nobody has it."""
        return bool(self._lock.acquire())

    def keep(self) -> None:
        """Keeps it for longer. If Redis was away for too long, another one may have it by now: that costs no more than calls."""
        try:
            self._lock.reacquire()
        except (redis.RedisError, LockError) as error:
            logger.warning("the turn to change weights was lost: %s", error)

    def give_back(self) -> None:
        """Gives it to the next."""
        try:
            self._lock.release()
        except (redis.RedisError, LockError) as error:
            logger.warning("the turn to change weights cannot be given back, and ends by itself: %s", error)


def _parsed(document: Mapping[str, Any]) -> Reload:
    in_flight = document["in_flight"]
    if not isinstance(in_flight, bool):
        raise TypeError("in_flight is no boolean")
    return Reload(
        checked_id(document["reload_id"], "an id"),
        checked_text(document["checkpoint"], "the checkpoint", longest=LONGEST_PATH),
        checked_text(document["weight_version"], "the weight version"),
        in_flight,
        float(document["asked"]),
    )
