"""Servers that this machine runs for a model pool: each joins the pool once it answers, and is started again if it fails.

A server that is started again has the weights that its replica was given last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue

import redis

from rollout_tasks.cleanup_process import CleanupProcess
from rollout_tasks.errors import UserError
from rollout_tasks.models.endpoint_check import problem_of
from rollout_tasks.models.first_answer import unanswered
from rollout_tasks.models.pool.membership import BEAT_SECONDS, Membership, id_of
from rollout_tasks.models.pool.reloads import Reload, Reloads
from rollout_tasks.models.pool.replicas import Replicas
from rollout_tasks.models.serving.checkpoint import read_checkpoint
from rollout_tasks.models.serving.replica_reload import ReplicaReload, Weights
from rollout_tasks.models.serving.server_process import ServerProcess
from rollout_tasks.models.serving.vllm_control import VllmControl
from rollout_tasks.models.serving.weight_changes import ServerState, WeightChanges
from rollout_tasks.restarted_process import RESTART_SECONDS
from rollout_tasks.temporary_files import TemporaryFolder

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_TELL_SECONDS = 30.0
"""How often is said that a server is still being started."""
_SILENT_SECONDS = 60.0
"""How long a server may give no answer before it is started again."""
_DISMISS_SECONDS = 10.0
_CHANGED = "changed"
"""The version of weights whose files were changed after they were loaded."""


@dataclass(frozen=True, slots=True)
class Server:
    """How one server is started, and where it listens then."""

    base_url: str
    command: Callable[[str], Sequence[str]]
    """Given a checkpoint, the program that serves it and its arguments."""
    options: Sequence[str]
    """Those of vLLM in it that the user gave."""
    environment: Mapping[str, str]
    secret: str = field(repr=False)
    """What vllm_plugin/rollouts_control_guard.py asks for there."""
    gpus: tuple[int, ...]
    """Those that it has; empty where there is none."""


class ServedReplicas:
    """The servers of one model, each a replica of a pool whenever it works, as long as this runs."""

    def __init__(
        self,
        client: redis.Redis,
        pool: str,
        servers: Sequence[Server],
        *,
        model: str,
        weights: Weights,
        logs: Path,
        start_seconds: float,
    ) -> None:
        """Starts nothing yet.

        Args:
            client: The workers' Redis; it decodes replies.
            pool: The pool's name.
            servers: What to start.
            model: The name under which they serve the model.
            weights: What they are started with.
            logs: A folder, which gets a log for each server.
            start_seconds: How long a server may take until it answers.

        Raises:
            ValueError: One of these cannot be stored; says which.
        """
        self._pool = pool
        self._replicas, self._reloads = Replicas(client, pool), Reloads(client, pool)
        self._servers = servers
        self._model, self._weights = model, weights
        self._logs, self._start_seconds = logs, start_seconds
        self._stop = threading.Event()
        self._works = threading.Event()
        """Set once any of the servers has answered: from then on, one that fails is started again."""
        self._failures: SimpleQueue[str] = SimpleQueue()
        for server in servers:
            self._membership(server, ServerState(weights))

    def run(self, stop: threading.Event) -> None:
        """Runs the servers until it is asked to stop; then takes them out of the pool and ends them.

        Raises:
            UserError: A server could not be started, ended, or did not get ready, before any of them had answered.
        """
        last_reload_time = self._asked_before(stop)
        folder = TemporaryFolder("rollouts-model-")
        cleanup = CleanupProcess(folder.lock)
        cleanup.remove_afterwards(folder.path)
        try:
            with ThreadPoolExecutor(len(self._servers), "server") as threads:
                keepers = [
                    threads.submit(
                        self._keep, server, ServerState(self._weights, last_reload_time), folder.path, cleanup
                    )
                    for server in self._servers
                ]
                try:
                    while not stop.wait(_LOOK_SECONDS) and not any(keeper.done() for keeper in keepers):
                        pass
                finally:
                    self._stop.set()  # each keeper ends its server
        finally:
            cleanup.dismiss(_DISMISS_SECONDS)
            folder.remove()
        for keeper in keepers:
            keeper.result()
        if not self._failures.empty():
            raise UserError(self._failures.get())

    def _keep(self, server: Server, state: ServerState, temporary: Path, cleanup: CleanupProcess) -> None:
        """Runs one server, again and again, until all are to stop."""
        name = id_of(server.base_url)
        pause, longest = RESTART_SECONDS
        while not self._stop.is_set():
            began = time.monotonic()
            why = self._run_once(server, state, temporary, cleanup)
            if self._stop.is_set():
                return
            if not self._works.is_set():
                self._failures.put(f"replica {name}: {why}; its log: {self._log(name)}")
                return
            if time.monotonic() - began > longest:
                pause = RESTART_SECONDS[0]
            logger.error("replica %s: %s; starting its server again in %.0f s", name, why, pause)
            self._stop.wait(pause)
            pause = min(pause * 2, longest)

    def _run_once(self, server: Server, state: ServerState, temporary: Path, cleanup: CleanupProcess) -> str:
        """Runs a server until it fails or all are to stop; returns why it failed. Nothing is left of it then."""
        self._replace_missing(state)
        state.weights = self._as_they_are(state.weights)
        membership = self._membership(server, state)
        name = membership.replica_id
        command = server.command(state.weights.checkpoint)
        # By this variable the cleanup process finds what was being started when this process was killed.
        environment = {**server.environment, "TMPDIR": str(temporary)}
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            process = ServerProcess(command, environment, self._log(name), cleanup)
        except OSError as error:
            return f"its server cannot be started: {error.filename or command[0]}: {error.strerror}"
        try:
            logger.info("replica %s: starting its server; its log: %s", name, self._log(name))
            if why := self._not_ready(server, name, process):
                return why
            self._works.set()
            return self._until_it_fails(server, state, process, membership)
        finally:
            membership.leave()
            process.end()

    def _not_ready(self, server: Server, name: str, process: ServerProcess) -> str:
        """Waits for a server's first answer; returns why there is none."""
        began = told = time.monotonic()
        while not self._stop.wait(_LOOK_SECONDS):
            if process.end_code() is not None:
                return f"its server {process.why_it_ended()}"
            now = time.monotonic()
            if not problem_of(server.base_url, "chat"):
                return self._not_answered(server, process)
            if now - began > self._start_seconds:
                return f"its server does not answer {self._start_seconds:g} s after its start: {process.last_line()}"
            if now - told > _TELL_SECONDS:
                told = now
                logger.info("replica %s: being started for %.0f s: %s", name, now - began, process.last_line())
        return "it is to stop"

    def _not_answered(self, server: Server, process: ServerProcess) -> str:
        """Asks a server that listens; returns why it does not answer."""
        answers: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=lambda: answers.put(unanswered(server.base_url, self._model)), daemon=True).start()
        while not self._stop.is_set():
            with suppress(Empty):
                return answers.get(timeout=_LOOK_SECONDS)
            if process.end_code() is not None:
                return f"its server {process.why_it_ended()}"
        return "it is to stop"

    def _until_it_fails(
        self, server: Server, state: ServerState, process: ServerProcess, membership: Membership
    ) -> str:
        """Keeps a server that works in the pool, with the weights that are wanted; returns why it does not any more."""
        changes = WeightChanges(
            state, self._reloads, membership, lambda reload: self._reload(server, state, reload, membership)
        )
        try:
            return self._until_it_answers_no_more(server, process, membership, changes)
        finally:
            changes.stop(for_good=self._stop.is_set())

    def _until_it_answers_no_more(
        self, server: Server, process: ServerProcess, membership: Membership, changes: WeightChanges
    ) -> str:
        answered = time.monotonic()
        due = 0.0
        while not self._stop.is_set():
            if why := changes.step():
                return why
            if process.end_code() is not None:
                return f"its server {process.why_it_ended()}"
            if time.monotonic() >= due:
                due = time.monotonic() + BEAT_SECONDS
                membership.look()
                changes.look()
                if membership.dead:
                    return "it was found to be of no use"
                if problem := problem_of(server.base_url, "chat"):
                    logger.warning(
                        "replica %s of model pool %s: the server %s", membership.replica_id, self._pool, problem
                    )
                    if time.monotonic() - answered > _SILENT_SECONDS:
                        return f"its server has given no answer for {_SILENT_SECONDS:g} s"
                else:
                    answered = time.monotonic()
                    membership.beat()
                    if membership.taken_over:
                        return "another process has its place in the pool: two with one --host and --port?"
            self._stop.wait(_LOOK_SECONDS)
        return "it is to stop"

    def _asked_before(self, stop: threading.Event) -> float:
        """Returns when the last change of weights was asked for before this was started: it does not count here."""
        while not stop.is_set():
            try:
                wanted = self._reloads.wanted()
            except redis.RedisError as error:
                logger.warning("model pool %s: Redis does not answer: %s", self._pool, error)
                stop.wait(BEAT_SECONDS)
            else:
                return wanted.asked if wanted else 0.0
        return 0.0

    def _reload(self, server: Server, state: ServerState, reload: Reload, membership: Membership) -> ReplicaReload:
        return ReplicaReload(
            reload,
            now=state.weights,
            model=self._model,
            options=server.options,
            counts_all=bool(server.gpus),
            membership=membership,
            control=VllmControl(server.base_url, server.secret),
            replicas=self._replicas,
            reloads=self._reloads,
        )

    def _replace_missing(self, state: ServerState) -> None:
        """Takes the weights that were asked for last, if the folder of those that the server had is gone."""
        folder = Path(state.weights.checkpoint)
        if not folder.is_absolute() or folder.is_dir():
            return
        try:
            wanted = self._reloads.wanted()
            if wanted is None or wanted.asked <= state.seen:
                return
            read_checkpoint(Path(wanted.checkpoint))
        except (redis.RedisError, ValueError, OSError) as error:
            logger.warning("%s is gone, and nothing can replace it: %s", folder, error)
            return
        logger.warning("%s is gone: starting with %s, which was asked for since", folder, wanted.checkpoint)
        state.weights, state.seen = Weights(wanted.checkpoint, wanted.weight_version), wanted.asked

    def _as_they_are(self, weights: Weights) -> Weights:
        """Returns the weights that a server would load now: under another version if the files have changed since."""
        folder = Path(weights.checkpoint)
        if not folder.is_dir():
            return weights
        try:
            fingerprint = read_checkpoint(folder).fingerprint
        except (ValueError, OSError):  # vLLM also loads others
            return weights
        if weights.fingerprint in (None, fingerprint):
            return replace(weights, fingerprint=fingerprint)
        logger.error("%s is not what it was when it was loaded: its weights are called %s", folder, _CHANGED)
        return Weights(weights.checkpoint, _CHANGED, fingerprint)

    def _membership(self, server: Server, state: ServerState) -> Membership:
        return Membership(
            self._replicas,
            server.base_url,
            model=self._model,
            weight_version=state.weights.version,
            gpu=",".join(map(str, server.gpus)) or None,
            checkpoint=state.weights.checkpoint,
            drained=state.drained,
        )

    def _log(self, name: str) -> Path:
        return self._logs / f"{name.replace(':', '-')}.log"
