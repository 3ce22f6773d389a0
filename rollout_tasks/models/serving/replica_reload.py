"""One replica gets other weights: looked at first, in its turn, with none of its calls cut off, and proved afterwards."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from rollout_tasks.models.first_answer import unanswered
from rollout_tasks.models.pool.membership import Membership
from rollout_tasks.models.pool.reloads import Reload, Reloads, Stage
from rollout_tasks.models.pool.replicas import Replicas, ReplicaState, StaleReplica
from rollout_tasks.models.serving.checkpoint import Checkpoint, difference, read_checkpoint, same_weights
from rollout_tasks.models.serving.vllm_control import ControlFailed, VllmControl

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
_STOP_SECONDS = 5.0
DRAIN_SECONDS = 1800.0
"""How long a replica may take to finish its calls; a reply of a long thought takes minutes."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a server has loaded, or is to load."""

    checkpoint: str
    version: str


@dataclass(slots=True)
class ServerState:
    """What a server's next process begins with."""

    weights: Weights
    seen: str | None = None
    """The last change of weights that it was asked for: none is tried twice."""
    drained: bool = False


class ReplicaReload:
    """A change of one replica's weights, in a thread of its own, so that the replica's signs of life go on."""

    def __init__(
        self,
        reload: Reload,
        *,
        now: Weights,
        model: str,
        options: Sequence[str],
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
            membership: The replica.
            control: Its server.
            replicas: The pool.
            reloads: Where is said how far it is.
        """
        self._reload, self._now, self._model, self._options = reload, now, model, options
        self._membership, self._control, self._replicas, self._reloads = membership, control, replicas, reloads
        self._turn = reloads.turn()
        self._stop = threading.Event()
        self._has_turn = False
        self.weights: Weights | None = None
        """What the server has now, if it is something else than before."""
        self.failure = ""
        """Why the server is of no use any more; empty while it is."""
        self.was_drained = membership.drained
        """Whether somebody had drained the replica before."""
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

    def stop(self, seconds: float) -> None:
        """Ends it, when the server is to end or has ended."""
        self._stop.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        stage, text = Stage.FAILED, ""
        try:
            stage, text = self._done()
        except redis.RedisError as error:
            text = f"Redis does not answer: {error}"
        except StaleReplica as error:
            text = str(error)
        except Exception as error:  # whoever asked is to know that it is over
            logger.exception("replica %s: its weights could not be changed", self._membership.replica_id)
            text = repr(error)
        finally:
            if self._has_turn:
                self._turn.give_back()
        if stage is Stage.FAILED and self.failure:
            text = f"{text}; its server is started again with {self._now.version}"
        self._tell(stage, text)

    def _done(self) -> tuple[Stage, str]:
        """Does it; returns how it ended."""
        try:
            new = self._checked()
        except ValueError as error:
            return Stage.REFUSED, str(error)
        try:
            before = self._control.checksum()
        except ControlFailed as error:
            return Stage.REFUSED, f"its server tells no checksum of its weights, as vLLM 0.32 does: {error}"
        self._tell(Stage.WAITING)
        while not self._turn.take():
            if self._stop.wait(_LOOK_SECONDS):
                return Stage.FAILED, "its server has ended"
        self._has_turn = True
        if not self._reload.in_flight and (still := self._drained()):
            self._membership.change(state=ReplicaState.DRAINING if self.was_drained else ReplicaState.READY)
            return Stage.FAILED, still
        self._tell(Stage.LOADING)
        try:
            self._load(new, before)
        except (ControlFailed, redis.RedisError) as error:
            self.failure = f"its weights could not be changed: {error}"
            self._membership.change(state=ReplicaState.DEAD)
            return Stage.FAILED, str(error)
        return Stage.DONE, ""

    def _checked(self) -> Checkpoint:
        """Returns the new checkpoint.

        Raises:
            ValueError: It cannot be loaded in the place of the one that the server has; says why.
        """
        new = read_checkpoint(Path(self._reload.checkpoint))
        now = Path(self._now.checkpoint)
        if now.is_dir() and (other := difference(read_checkpoint(now), new)):
            raise ValueError(f"{new.folder} {other}: it is another model than {now}")
        return new

    def _drained(self) -> str:
        """Has the replica finish its calls; returns why it did not."""
        self._membership.change(state=ReplicaState.DRAINING)
        replica = self._membership.replica
        waited = 0.0
        while replica is not None and (left := self._replicas.in_flight(replica)):
            self._tell(Stage.DRAINING, f"{left} {'call' if left == 1 else 'calls'}")
            if self._stop.wait(_LOOK_SECONDS):
                return "its server has ended"
            waited += _LOOK_SECONDS
            if waited > DRAIN_SECONDS:
                return f"it still has {left} calls after {DRAIN_SECONDS:g} s, and goes on with the weights that it has"
        return ""

    def _load(self, new: Checkpoint, before: str) -> None:
        """Gives the server the new weights.

        Raises:
            ControlFailed: That did not work: what it has now is not known.
        """
        self._control.pause(in_flight=self._reload.in_flight)
        self._control.load(str(new.folder))
        self._control.forget()
        self._prove(new, before)
        self._control.name_weights(self._reload.weight_version)
        self._membership.change(weight_version=self._reload.weight_version, checkpoint=self._reload.checkpoint)
        self._control.resume()
        if why := unanswered(self._membership.base_url, self._model):
            raise ControlFailed(f"with its new weights, {why}")
        self.weights = Weights(self._reload.checkpoint, self._reload.weight_version)
        self._membership.change(state=ReplicaState.DRAINING if self.was_drained else ReplicaState.READY)

    def _prove(self, new: Checkpoint, before: str) -> None:
        """Checks that the server holds the new weights, and not those before or others.

        Raises:
            ControlFailed: It does not.
        """
        now = self._control.checksum()
        if now == before and Path(self._now.checkpoint).is_dir():
            old = read_checkpoint(Path(self._now.checkpoint))
            if old.fingerprint != new.fingerprint and not same_weights(old, new):
                raise ControlFailed("it has the weights before, though it says that it has loaded the new ones")
        held = hashlib.sha256("\0".join([new.fingerprint, *self._options]).encode()).hexdigest()
        known = self._reloads.known_checksum(held, now)
        if known != now:
            raise ControlFailed("it has other weights than the replica that loaded this checkpoint first")

    def _tell(self, stage: Stage, text: str = "") -> None:
        try:
            self._reloads.tell(self._reload, self._membership.replica_id, stage, text)
        except redis.RedisError as error:
            logger.warning("replica %s: how far its reload is cannot be said: %s", self._membership.replica_id, error)
        level = logging.INFO if stage in (Stage.WAITING, Stage.DRAINING, Stage.LOADING, Stage.DONE) else logging.ERROR
        logger.log(
            level,
            "replica %s: weights %s: %s%s",
            self._membership.replica_id,
            self._reload.weight_version,
            stage.value,
            f": {text}" if text else "",
        )


class WeightChanges:
    """The changes of a server's weights, one after the other, as they are asked for."""

    def __init__(
        self, state: ServerState, reloads: Reloads, membership: Membership, start: Callable[[Reload], ReplicaReload]
    ) -> None:
        """Starts nothing yet.

        Args:
            state: Is kept up to date.
            reloads: Where they are asked for.
            membership: The replica.
            start: Begins one.
        """
        self._state, self._reloads, self._membership, self._start = state, reloads, membership, start
        self._current: ReplicaReload | None = None

    def look(self) -> None:
        """Begins the change that is asked for, if there is a new one; keeps the turn of the one that is under way."""
        if self._current is not None:
            self._current.keep_turn()
            return
        with suppress(redis.RedisError):
            wanted = self._reloads.wanted()
            if wanted is not None and wanted.reload_id != self._state.seen and self._membership.replica is not None:
                self._state.seen = wanted.reload_id
                self._current = self._start(wanted)

    def step(self) -> str:
        """Notes what has become of the one that was under way; returns why the server is of no use any more, if so."""
        if self._current is None or not self._current.over:
            return ""
        over, self._current = self._current, None
        self._state.weights = over.weights or self._state.weights
        self._state.drained = over.was_drained
        return over.failure

    def stop(self) -> None:
        """Ends the one that is under way, because the server is to end or has ended."""
        if self._current is None:
            self._state.drained = self._membership.drained
            return
        self._current.stop(_STOP_SECONDS)
        self._state.weights = self._current.weights or self._state.weights
        self._state.drained = self._current.was_drained
