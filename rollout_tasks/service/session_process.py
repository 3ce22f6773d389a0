"""The process of one session: it holds the VM's lease and the environment, and carries out what it is told over its channel.

    waits for a VM -> "granted" -> sets the item up -> "ready" -> acts ... -> evaluates -> gives the VM back -> "ended"

A process of its own, because only a main thread can be interrupted in calls that have no timeout. It ends by itself when the
channel does, that is when the program that started it is gone; if it cannot even do that, its lease expires.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import Any

from rollout_tasks import registry
from rollout_tasks.agents.tool_calls import ToolCallReader, UnusableCallError
from rollout_tasks.cells.channel import BadMessage, ChannelEnded, MessageChannel
from rollout_tasks.environments.base import Environment, EnvironmentContext, Tool, ToolCall, ToolResult, VMAccess
from rollout_tasks.errors import EpisodeInterrupted, FailureClass, RolloutFailure, boundary
from rollout_tasks.execution.checked_environment import CheckedEnvironment, prepared
from rollout_tasks.execution.heartbeat import VMHeartbeat
from rollout_tasks.execution.leased_vm import AttemptVM, leased_vm
from rollout_tasks.execution.stages import closing, limited, made, preparing
from rollout_tasks.interruption import Interruption
from rollout_tasks.models.base import RawToolCall
from rollout_tasks.service.session_order import SessionOrder, packed
from rollout_tasks.settings import settings
from rollout_tasks.trajectories.writer import TrajectoryWriter
from vm_pool.gate_relay import relayed
from vm_pool.lease import Lease

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_LAST_WORDS_SECONDS = 10.0
"""How long the last message may take."""


class SessionProcess:
    """One session in its own process; a `VMUse`."""

    def __init__(self, connection: socket.socket) -> None:
        """Reads what the session is.

        Raises:
            ChannelEnded: Whoever ordered it is gone already.
        """
        self._channel = MessageChannel(connection)
        self._order = SessionOrder.from_dict(self._channel.receive())
        self.interruption = Interruption()
        self.lease: Lease | None = None
        self._commands: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._outbox: SimpleQueue[tuple[dict[str, Any], Sequence[bytes] | None] | None] = SimpleQueue()
        self._turn = 0
        self._over: str | None = None
        """How the episode ended: ``done`` or ``fail`` by the agent's word, or ``max_turns``; None while it may act."""
        self._score: float | None = None
        self._stages: dict[str, float] = {}

    @property
    def name(self) -> str:
        """See `VMUse`."""
        return self._order.session_id

    def run(self) -> None:
        """Carries the session out, and tells how it ended."""
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        writer = threading.Thread(target=self._write, name="replies", daemon=True)
        writer.start()
        heartbeat: VMHeartbeat[SessionProcess] = VMHeartbeat(min(settings().beat_seconds, settings().lease_ttl / 3))
        heartbeat.pulse = self
        failure_class: FailureClass | None = None
        error = ""
        try:
            with boundary(FailureClass.INTERNAL, "the session"):
                self._lease_and_play()
        except (RolloutFailure, EpisodeInterrupted) as failure:
            failure_class, error = failure.failure_class, str(failure)
        heartbeat.pulse = None
        self._tell(
            {
                "event": "ended",
                "score": self._score if failure_class is None else None,
                "ending": self._over,
                "turns": self._turn,
                "failure_class": failure_class,
                "error": error,
                "stages": self._stages,
            }
        )
        self._outbox.put(None)
        writer.join(_LAST_WORDS_SECONDS)

    # What goes over the channel. An interruption in the middle of a message would spoil the next one: a thread writes.

    def _listen(self) -> None:
        """Takes commands until the other side is gone."""
        try:
            while True:
                command = self._channel.receive()
                if command["call"] == "stop":
                    self.interruption.request(FailureClass.CANCELLED, str(command["why"]))
                else:
                    self._commands.put(command)
        except ChannelEnded:
            self.interruption.request(FailureClass.CANCELLED, "the program that served the session is gone")
        except BadMessage as error:  # nothing after it can be read
            self.interruption.request(FailureClass.CANCELLED, f"what was asked of the session cannot be read: {error}")

    def _write(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                self._channel.send(*message)
            except ChannelEnded:
                return

    def _tell(self, message: dict[str, Any], content: Sequence[bytes] | None = None) -> None:
        self._outbox.put((message, content))

    # The session itself

    def _lease_and_play(self) -> None:
        order = self._order
        environment_class = registry.environment(registry.environment_name(order.item, order.config))
        with preparing(self.interruption):
            downloads = prepared(environment_class, order.config, order.item)
        if not environment_class.needs_vm_for(order.config, order.item):
            self._tell({"event": "granted", "vm_id": None, "fence": 0, "pooled": False, "ports": {}})
            self._play(environment_class, None, downloads)
            return
        with boundary(FailureClass.ENV_SETUP, f"{environment_class.__name__}.snapshot"):
            snapshot = environment_class.snapshot(order.item)
        with (
            leased_vm(order.config, self.name, f"session@{socket.gethostname()}", self, snapshot=snapshot) as vm,
            relayed(vm.endpoint) if order.lends_ports else nullcontext() as reached,
        ):
            self._tell(
                {
                    "event": "granted",
                    "vm_id": vm.vm_id,
                    "fence": vm.fence,
                    "pooled": order.config.vm.use_pool,
                    "ports": dict(reached.ports) if reached is not None else {},
                    "endpoint": asdict(vm.endpoint),
                }
            )
            self._play(environment_class, vm, downloads)
        self._check_exclusive(vm)

    @staticmethod
    def _check_exclusive(vm: AttemptVM) -> None:
        """Raises if somebody else may have used the VM: then nothing of the episode can be relied on."""
        if vm.ended_early:
            message = (
                f"the lease of {vm.vm_id} had ended before the VM was given back: somebody else may have used it, too"
            )
            raise RolloutFailure(FailureClass.LEASE_LOST, message)

    def _play(self, environment_class: type[Environment], vm: VMAccess | None, downloads: dict[str, str]) -> None:
        order, seconds = self._order, self._order.config.limits.max_seconds
        opened: list[CheckedEnvironment] = []
        trajectory = TrajectoryWriter(order.folder, enabled=order.config.save_results)
        trajectory.start(self._header(vm, downloads))
        try:
            with closing(self, opened), ExitStack() as playing:
                playing.callback(self._tell, {"event": "closing"})  # nobody reaches the VM while it is given back
                context = EnvironmentContext(order.config, order.folder, vm, index=order.index)
                with limited(self.interruption, "setup", seconds):
                    world = made(environment_class, context)
                    opened.append(world)
                    observation = world.reset(order.item)
                    tools, instructions = world.tools(), world.instructions(order.item)
                trajectory.observed(observation)
                shown, images = packed(observation)
                described = [tool.as_openai() for tool in tools]
                self._tell({"event": "ready", "shown": shown, "tools": described, "instructions": instructions}, images)
                with limited(self.interruption, "acting", seconds):
                    self._act_until_evaluation(world, tools, trajectory)
                if self._over == "max_turns" and not environment_class.scores_unfinished:
                    raise RolloutFailure(FailureClass.MAX_TURNS, f"not finished after {self._turn} turns")
                with limited(self.interruption, "evaluation", seconds):
                    self._score = world.evaluate()
        finally:
            trajectory.finish()
            for world in opened:
                self._stages = {stage: round(taken, 3) for stage, taken in world.seconds.items() if taken}

    def _act_until_evaluation(
        self, world: CheckedEnvironment, tools: Sequence[Tool], trajectory: TrajectoryWriter
    ) -> None:
        reader = ToolCallReader(tools)
        while (command := self._next_command())["call"] == "act":
            if self._over is not None:
                self._tell({"reply": command["number"], "refused": f"the episode is over ({self._over})"})
                continue
            self._turn += 1
            began = time.monotonic()
            call, result = _carried_out(world, reader, command, self._turn)
            seconds = time.monotonic() - began
            trajectory.step(turn=self._turn, call=call, result=result, seconds=seconds)
            if result.ends_episode is not None:
                self._over = result.ends_episode
            elif self._turn >= self._order.config.limits.max_turns:
                self._over = "max_turns"
            self._tell_result(command["number"], result, seconds)

    def _next_command(self) -> dict[str, Any]:
        """Waits for a command. Looks up now and then: a signal that came just before the wait would not end it."""
        while True:
            with suppress(Empty):
                return self._commands.get(timeout=_LOOK_SECONDS)

    def _tell_result(self, number: int, result: ToolResult, seconds: float) -> None:
        shown, images = (None, None) if result.observation is None else packed(result.observation)
        self._tell(
            {
                "reply": number,
                "status": result.status,
                "response": result.response,
                "over": self._over,
                "turn": self._turn,
                "seconds": seconds,
                "shown": shown,
            },
            images,
        )

    def _header(self, vm: VMAccess | None, downloads: dict[str, str]) -> dict[str, object]:
        order = self._order
        return {
            "session_id": order.session_id,
            "item_id": order.item.id,
            "index": order.index,
            "question": order.item.question,
            "vm_id": vm.vm_id if vm else None,
            "started": time.time(),
            **({"downloads": downloads} if downloads else {}),
        }


def _carried_out(
    world: CheckedEnvironment, reader: ToolCallReader, command: dict[str, Any], turn: int
) -> tuple[ToolCall, ToolResult]:
    """Validates and carries out one call; one that is wrong becomes a failed result, as for an agent."""
    raw = RawToolCall(f"call_{turn}", command["name"], json.dumps(command["arguments"]))
    try:
        call = reader.read(raw, cut_off=False)
    except UnusableCallError as error:
        return ToolCall(raw.id, raw.name, command["arguments"]), ToolResult("failed", str(error))
    return call, world.execute(call)


def serve(connection: socket.socket) -> None:
    """Carries out the session that comes over a connection."""
    try:
        SessionProcess(connection).run()
    except ChannelEnded:
        logger.info("session process %d: nobody is left who wants its session", os.getpid())
