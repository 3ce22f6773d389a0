"""One replica gets other weights: looked at first, in its turn, with none of its calls cut off, and proved afterwards.

From the moment that its server is paused until its weights are proved, everything that goes wrong ends in a server that is
started again: what it holds then is not known.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from rollout_tasks.models.first_answer import unanswered
from rollout_tasks.models.pool.membership import BEAT_SECONDS, Membership
from rollout_tasks.models.pool.reloads import ENDS, Reload, Reloads, Stage
from rollout_tasks.models.pool.replicas import Replicas, ReplicaState, StaleReplica
from rollout_tasks.models.serving.checkpoint import (
    Checkpoint,
    difference,
    folder_of,
    notes,
    read_checkpoint,
    same_weights,
)
from rollout_tasks.models.serving.vllm_control import ControlFailed, VllmControl

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
_STOP_SECONDS = 5.0
_PAUSED_SECONDS = 120.0
"""How long Redis, or the replica's next sign of life, is waited for while its server is paused."""
DRAIN_SECONDS = 1800.0
"""How long a replica may take to finish its calls; a reply of a long thought takes minutes."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a server has loaded, or is to load."""

    checkpoint: str
    version: str
    fingerprint: str | None = None
    """That of the checkpoint's files when they were loaded; None: not known."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a change ended."""

    reload: Reload
    stage: Stage
    text: str


class _RefusedError(Exception):
    """The checkpoint cannot be used; says why."""


class _NotChangedError(Exception):
    """The server keeps the weights that it has; says why."""


class _EndedError(Exception):
    """The server has ended."""


class ReplicaReload:
    """A change of one replica's weights, in a thread of its own, so that the replica's signs of life go on."""

    def __init__(
        self,
        reload: Reload,
        *,
        now: Weights,
        model: str,
        options: Sequence[str],
        counts_all: bool,
        membership: Membership,
        control: VllmControl,
        replicas: Replicas,
        reloads: Reloads,
    ) -> None:
        """Starts it.

        Args:
            reload: What was asked for.
            now: What the server has.
            model: The name under which it serves the model.
            options: How it holds its weights: servers with other options may have other checksums of the same ones.
            counts_all: Whether its checksum counts all of its weights; on CPUs, vLLM packs most of them and leaves those out.
            membership: The replica.
            control: Its server.
            replicas: The pool.
            reloads: Where is said how far it is.
        """
        self.reload = reload
        self._now, self._model, self._options, self._counts_all = now, model, options, counts_all
        self._membership, self._control, self._replicas, self._reloads = membership, control, replicas, reloads
        self._turn = reloads.turn()
        self._stop = threading.Event()
        self._for_good = False
        self._has_turn = False
        self.weights: Weights | None = None
        """What the server has now, if it is something else than before."""
        self.failure = ""
        """Why the server is of no use any more; empty while it is."""
        self.touched = False
        """Whether the server was told anything."""
        self.drained: bool | None = None
        """Whether somebody had drained the replica before; None while it has not had its turn."""
        self.untold: Outcome | None = None
        """How it ended, if Redis was away then."""
        self._thread = threading.Thread(target=self._run, name=f"reload {membership.replica_id}", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def keep_turn(self) -> None:
        """Keeps the replica's turn; to be called at least every third of `TURN_SECONDS`."""
        if self._has_turn:
            self._turn.keep()

    def stop(self, *, for_good: bool = False) -> None:
        """Ends it, when the server is to end or has ended.

        Args:
            for_good: Whether the server is not started again.
        """
        self._for_good = for_good
        self._stop.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        stage, text = Stage.FAILED, "its server has ended"
        try:
            stage, text = Stage.DONE, self._done()
        except _RefusedError as error:
            stage, text = Stage.REFUSED, str(error)
        except _NotChangedError as error:
            stage, text = Stage.UNCHANGED, str(error)
        except _EndedError:
            if not self.touched and not self._for_good:  # the next process begins anew
                stage = Stage.WAITING
        except Exception as error:
            if not isinstance(error, (ControlFailed, StaleReplica, redis.RedisError, OSError, ValueError)):
                logger.exception("replica %s: its weights could not be changed", self._membership.replica_id)
            text = str(error) or repr(error)
        if self._for_good and stage is Stage.FAILED:
            text = "its server is shut down"
        elif self.failure:
            self.failure = f"its weights could not be changed: {text}"
            text = f"{text}; its server is started again with {(self.weights or self._now).version}"
        if not self._tell(stage, text):
            self.untold = Outcome(self.reload, stage, text)
        if self._has_turn:  # only now: whoever is next is to know how this ended
            self._has_turn = False
            self._turn.give_back()

    def _done(self) -> str:
        """Does it; returns what is to be said of it.

        Raises:
            _RefusedError: The checkpoint cannot be used.
            _NotChangedError: The server keeps the weights that it has.
            _EndedError: The server has ended.
            Exception: It did not work; `failure` says whether the server is still of use.
        """
        new, note = self._checked()
        self._await_turn()
        with suppress(redis.RedisError):
            self._membership.look()
        self.drained = self._membership.drained
        before = self._checksum()
        try:
            if not self.reload.in_flight:
                self._drain()
            if read_checkpoint(new.folder).fingerprint != new.fingerprint:
                raise _NotChangedError(f"{new.folder} was changed meanwhile: is it still being written?")
        except (_NotChangedError, ValueError, OSError) as error:
            self._set(state=self._state_before())
            raise _NotChangedError(str(error)) from error
        self._tell(Stage.LOADING)
        self.touched, self.failure = True, "its weights are not known"
        self._load(new, before)
        self.weights = Weights(str(new.folder), self.reload.weight_version, new.fingerprint)
        self.failure = ""
        self._set(state=self._state_before())
        return note

    def _checked(self) -> tuple[Checkpoint, str]:
        """Returns the new checkpoint, and what is to be said of it.

        Raises:
            _RefusedError: It cannot be loaded in the place of the one that the server has.
        """
        try:
            new = read_checkpoint(Path(self.reload.checkpoint).resolve())
            now = folder_of(self._now.checkpoint)
        except (ValueError, OSError, RuntimeError) as error:
            raise _RefusedError(str(error)) from error
        if now is None and Path(self._now.checkpoint).is_absolute():
            logger.warning(
                "replica %s: %s is gone: it is not compared", self._membership.replica_id, self._now.checkpoint
            )
            return new, ""
        if now is None:
            raise _RefusedError(
                f"the files of {self._now.checkpoint}, with which its server was started, are not found: start it with a folder"
            )
        try:
            old = read_checkpoint(now)
            other, note = difference(old, new), notes(old, new)
        except (ValueError, OSError) as error:  # as where old ones are deleted
            logger.warning("replica %s: the weights before cannot be compared: %s", self._membership.replica_id, error)
            return new, ""
        if other:
            raise _RefusedError(f"{new.folder} {other}: it is another model than {now}")
        return new, note

    def _await_turn(self) -> None:
        """Waits until no other replica is changed.

        Raises:
            _NotChangedError: There is no use in it any more.
            _EndedError: The server has ended.
        """
        self._tell(Stage.WAITING)
        while True:
            with suppress(redis.RedisError):
                self._has_turn = self._has_turn or self._turn.take()
                wanted = self._reloads.wanted()
                if wanted is not None and wanted.reload_id != self.reload.reload_id:
                    raise _NotChangedError("another change was asked for meanwhile")
                for name, progress in self._reloads.progress(self.reload).items():
                    if progress.stage in (Stage.FAILED, Stage.REFUSED) and name != self._membership.replica_id:
                        what = "failed with" if progress.stage is Stage.FAILED else "refused"
                        raise _NotChangedError(f"replica {name} {what} it, so it was not tried here")
                if self._has_turn:
                    return
            if self._stop.wait(_LOOK_SECONDS):
                raise _EndedError

    def _checksum(self) -> str:
        try:
            return self._control.checksum()
        except ControlFailed as error:
            raise _NotChangedError(
                f"its server tells no checksum of its weights, as vLLM 0.32 does: {error}"
            ) from error

    def _drain(self) -> None:
        """Has the replica finish its calls.

        Raises:
            _NotChangedError: It does not, in time.
            _EndedError: The server has ended.
        """
        self._set(state=ReplicaState.DRAINING)
        deadline = time.monotonic() + DRAIN_SECONDS
        told = -1
        while True:
            replica = self._membership.replica
            left = None
            with suppress(redis.RedisError):
                left = 0 if replica is None else self._replicas.in_flight(replica)
            if left == 0:
                return
            if left is not None and left != told:
                told = left
                self._tell(Stage.DRAINING, f"{left} {'call' if left == 1 else 'calls'}")
            if self._stop.wait(_LOOK_SECONDS):
                raise _EndedError
            if time.monotonic() > deadline:
                raise _NotChangedError(f"it still has {max(told, 0)} calls after {DRAIN_SECONDS:g} s")

    def _load(self, new: Checkpoint, before: str) -> None:
        """Gives the server the new weights.

        Raises:
            ControlFailed: That did not work.
        """
        steps: Sequence[Callable[[], None]] = (
            lambda: self._control.pause(in_flight=self.reload.in_flight),
            lambda: self._control.load(str(new.folder)),
            lambda: self._control.forget(in_flight=self.reload.in_flight),
            lambda: self._prove(new, before),
            lambda: self._control.name_weights(self.reload.weight_version),
            lambda: self._set(_PAUSED_SECONDS, weight_version=self.reload.weight_version, checkpoint=str(new.folder)),
            self._control.resume,
        )
        for step in steps:
            if self._stop.is_set():  # else the next process might be told
                raise ControlFailed("its server has ended")
            step()
        # With calls under way, another one may have to wait for long: these are asked already.
        if not self.reload.in_flight and (why := unanswered(self._membership.base_url, self._model)):
            raise ControlFailed(f"with its new weights, {why}")

    def _prove(self, new: Checkpoint, before: str) -> None:
        """Checks that the server holds the new weights, and not those before or others.

        Raises:
            ControlFailed: It does not.
        """
        now = self._control.checksum()
        if read_checkpoint(new.folder).fingerprint != new.fingerprint:
            raise ControlFailed(f"{new.folder} was changed while it was loaded")
        old = folder_of(self._now.checkpoint)
        if self._counts_all and now == before and old is not None and self._differ(old, new):
            raise ControlFailed("it has the weights before, though it says that it has loaded the new ones")
        held = hashlib.sha256("\0".join(self._options).encode()).hexdigest()
        if self._reloads.known_checksum(self.reload, held, now) != now:
            raise ControlFailed("it has other weights than the replica that loaded this checkpoint first")

    def _differ(self, old: Path, new: Checkpoint) -> bool:
        """Whether two checkpoints have other weights, as far as can be said."""
        try:
            earlier = read_checkpoint(old)
            known = self._now.fingerprint in (None, earlier.fingerprint) and earlier.tensors == new.tensors
            return known and not same_weights(earlier, new)
        except (ValueError, OSError, LookupError):
            return False

    def _state_before(self) -> ReplicaState:
        return ReplicaState.DRAINING if self.drained else ReplicaState.READY

    def _set(
        self,
        seconds: float = math.inf,
        *,
        state: ReplicaState | None = None,
        weight_version: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Changes the replica; waits for Redis, and for the replica's next sign of life if Redis has lost it.

        Raises:
            redis.RedisError: Redis was away for that many seconds.
            StaleReplica: The replica is dead, taken over, or did not come back in that time.
            _EndedError: The server has ended.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._membership.change(state=state, weight_version=weight_version, checkpoint=checkpoint)
            except (redis.RedisError, StaleReplica):
                if self._membership.taken_over or self._membership.dead or time.monotonic() > deadline:
                    raise
            else:
                return
            if self._stop.wait(BEAT_SECONDS / 5):
                raise _EndedError

    def _tell(self, stage: Stage, text: str = "") -> bool:
        """Says how far it is; returns whether Redis knows."""
        level = logging.INFO if stage not in ENDS or stage is Stage.DONE else logging.ERROR
        said = f"{stage.value}: {text}" if text else stage.value
        logger.log(level, "replica %s: weights %s: %s", self._membership.replica_id, self.reload.weight_version, said)
        try:
            self._reloads.tell(self.reload, self._membership.replica_id, stage, text)
        except redis.RedisError as error:
            logger.warning("replica %s: Redis cannot be told: %s", self._membership.replica_id, error)
            return False
        return True
