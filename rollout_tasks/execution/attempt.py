"""One attempt at a rollout: a VM if one is needed, the environment, the episode, its evaluation, and cleanup.

Whatever happens in it becomes a verdict; only a defect of the worker itself raises an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.agents.base import Episode
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Environment, EnvironmentContext, VMAccess
from rollout_tasks.errors import EpisodeInterrupted, FailureClass, RolloutFailure, boundary
from rollout_tasks.execution.checked_environment import CheckedEnvironment, prepared
from rollout_tasks.execution.environment_model import model_of_environment
from rollout_tasks.execution.heartbeat import Pulse
from rollout_tasks.execution.leased_vm import leased_vm
from rollout_tasks.execution.stages import closing, limited, made, preparing
from rollout_tasks.models.attempt_models import cost_of, open_models
from rollout_tasks.models.session_ids import session_id
from rollout_tasks.models.usage_meter import UsageMeter
from rollout_tasks.runs.verdict import LeaseRecord, Verdict, split_rollout_id
from rollout_tasks.trajectories.checked_traces import problem_of
from rollout_tasks.trajectories.writer import TrajectoryWriter
from vm_pool.contracts import returned

NEARLY_ALL = 0.9
"""The part of an agent's time after which a single call without a reply counts as the endpoint's failure."""


@dataclass(slots=True)
class Attempt:
    """One attempt at a rollout."""

    run_id: str
    rollout_id: str
    number: int
    item: Item
    config: RunConfig
    directory: Path
    worker: str
    _downloads: dict[str, str] = field(default_factory=dict, init=False)
    """The SHA-256 of each file that was downloaded for it, by URL."""

    def run(self, pulse: Pulse) -> Verdict:
        """Runs the attempt to a verdict, classified and cleaned up."""
        began = time.monotonic()
        verdict = Verdict(
            rollout_id=self.rollout_id, attempt=self.number, status="failed", worker=self.worker, started=time.time()
        )
        try:
            verdict = self._lease_and_run(verdict, pulse)
        except RolloutFailure as failure:
            verdict = replace(verdict, failure_class=failure.failure_class, error=str(failure))
        except EpisodeInterrupted as interruption:
            verdict = replace(verdict, failure_class=interruption.failure_class, error=str(interruption))
        if verdict.failure_class is FailureClass.CANCELLED:
            verdict = replace(verdict, status="cancelled")
        elif verdict.turns and self.config.save_results and self.config.model.extra_body.get("return_token_ids"):
            verdict = replace(verdict, record_problem=problem_of(self.directory))
        return replace(verdict, finished=verdict.started + time.monotonic() - began)  # clocks may be changed meanwhile

    def _lease_and_run(self, verdict: Verdict, pulse: Pulse) -> Verdict:
        with boundary(FailureClass.INTERNAL, "preparing the attempt"):
            name = registry.environment_name(self.item, self.config)
            environment_class = registry.environment(name)
            needs_vm = environment_class.needs_vm_for(self.config, self.item)
        self._prepare(environment_class, pulse)
        if not needs_vm:
            return self._episode(verdict, environment_class, None, pulse)
        requested_at = time.monotonic()
        lease: LeaseRecord | None = None
        try:
            with boundary(FailureClass.ENV_SETUP, f"{environment_class.__name__}.snapshot"):
                snapshot = environment_class.snapshot(self.item)
            with leased_vm(self.config, self.rollout_id, self.worker, pulse, snapshot=snapshot) as vm:
                granted = time.monotonic()
                lease = LeaseRecord(vm.vm_id, vm.fence, granted - requested_at, time.time(), 0.0)
                verdict = self._episode(replace(verdict, lease=lease), environment_class, vm, pulse)
        except RolloutFailure as failure:
            if lease is None:
                raise
            verdict = replace(
                verdict, status="failed", score=None, failure_class=failure.failure_class, error=str(failure)
            )
        held = time.monotonic() - granted
        if vm.ended_early and (verdict.failure_class is None or verdict.failure_class.counted_as == "agent"):
            error = (
                f"the lease of {vm.vm_id} had ended before the VM was given back: somebody else may have used it, too"
            )
            verdict = replace(verdict, status="failed", score=None, failure_class=FailureClass.LEASE_LOST, error=error)
        return replace(verdict, lease=replace(lease, released=lease.allocated + held))

    def _prepare(self, environment_class: type[Environment], pulse: Pulse) -> None:
        """Does what needs no VM before one is asked for."""
        with preparing(pulse.interruption):
            self._downloads = prepared(environment_class, self.config, self.item)
            agent = registry.agent(self.config.agent or environment_class.default_agent)
            if (prepare := getattr(agent, "prepare", None)) is not None:
                prepare()

    def _episode(
        self, verdict: Verdict, environment_class: type[Environment], vm: VMAccess | None, pulse: Pulse
    ) -> Verdict:
        """Resets, acts and evaluates, each under a deadline; failures keep what is known of the attempt."""
        item_id, index = split_rollout_id(self.rollout_id)
        with boundary(FailureClass.MODEL, "the model's configuration"):
            session = session_id(self.run_id, item_id, index, self.number)
            meter = open_models(self.config, session, for_environment=environment_class.asks_model)
        opened: list[CheckedEnvironment] = []
        try:
            with (
                boundary(FailureClass.INTERNAL, "the episode"),
                self._recording(environment_class, vm) as trajectory,
                closing(pulse, opened),
            ):
                context = EnvironmentContext(
                    self.config,
                    self.directory,
                    vm,
                    attempt=self.number,
                    index=index,
                    model=model_of_environment(meter),
                )
                episode, score = self._act(environment_class, context, meter, trajectory, opened, pulse)
        except (RolloutFailure, EpisodeInterrupted) as failure:
            failure_class, error = failure.failure_class, str(failure)
            longest = min(*(model.timeout for model in self.config.models), NEARLY_ALL * self.config.limits.max_seconds)
            if failure_class is FailureClass.TIMEOUT and meter.kept_waiting >= longest:
                failure_class = FailureClass.MODEL_OVERLOAD  # the agent was kept waiting
                error += f": the model's endpoint had not answered for {meter.kept_waiting:.0f} s"
            return replace(
                verdict,
                failure_class=failure_class,
                error=error,
                turns=meter.turns,
                usage=meter.total,
                cost=cost_of(self.config, meter),
                stages=_stages(meter, opened),
                **_said_by(opened),
            )
        return replace(
            verdict,
            status="completed",
            answer=episode.answer,
            score=score,
            ending=episode.ending,
            turns=episode.turns,
            usage=meter.total,
            cost=cost_of(self.config, meter),
            stages=_stages(meter, opened),
            **_said_by(opened),
        )

    def _act(
        self,
        environment_class: type[Environment],
        context: EnvironmentContext,
        model: UsageMeter,
        trajectory: TrajectoryWriter,
        opened: list[CheckedEnvironment],
        pulse: Pulse,
    ) -> tuple[Episode, float | None]:
        """Runs the episode; returns it and the environment's own score of it."""
        limits = self.config.limits
        with limited(pulse.interruption, "setup", limits.max_seconds):
            world = made(environment_class, context)
            opened.append(world)
            agent = registry.agent(self.config.agent or environment_class.default_agent)(self.config)
            observation = world.reset(self.item)
        with limited(pulse.interruption, "acting", limits.max_seconds):
            trajectory.observed(observation)
            try:
                episode = returned(
                    agent.run(self.item, world, observation, model, limits, trajectory),
                    Episode,
                    f"{type(agent).__name__}.run",
                )
            except RolloutFailure as failure:
                if failure.failure_class is not FailureClass.MAX_TURNS or not environment_class.scores_unfinished:
                    raise
                episode = Episode("", "max_turns", model.turns, model.total)
        with limited(pulse.interruption, "evaluation", limits.max_seconds):
            return episode, world.evaluate()

    @contextmanager
    def _recording(self, environment_class: type[Environment], vm: VMAccess | None) -> Iterator[TrajectoryWriter]:
        """Records the attempt's trajectory, which is durable at its end."""
        trajectory = TrajectoryWriter(self.directory, enabled=self.config.save_results)
        try:
            trajectory.start(self._header(environment_class, vm))
            yield trajectory
        finally:
            trajectory.finish()

    def _header(self, environment_class: type[Environment], vm: VMAccess | None) -> dict[str, object]:
        profile = self.config.profile
        roles = {
            role.role: {"model": role.model.name, "profile": role.profile_name} for role in self.config.model_roles
        }
        return {
            "run_id": self.run_id,
            "rollout_id": self.rollout_id,
            "attempt": self.number,
            "question": self.item.question,
            "model": self.config.model.answerer,
            "agent": self.config.agent or environment_class.default_agent,
            "profile": None if profile is None else {name: profile.get(name) for name in ("name", "version")},
            "worker": self.worker,
            "vm_id": vm.vm_id if vm else None,
            "started": time.time(),
            **({"roles": roles} if roles else {}),
            **({"downloads": self._downloads} if self._downloads else {}),
        }


def _said_by(opened: Sequence[CheckedEnvironment]) -> dict[str, Any]:
    """Returns what the verdict records about the environment."""
    return {"task_code": opened[0].task_code, "attestation": opened[0].attestation} if opened else {}


def _stages(meter: UsageMeter, opened: Sequence[CheckedEnvironment]) -> dict[str, float]:
    """Returns the seconds of each stage; an attempt that failed early has fewer stages."""
    seconds = {"model": meter.seconds} | {role: other.seconds for role, other in meter.roles.items()}
    for world in opened:
        seconds |= world.seconds
    return {stage: round(taken, 3) for stage, taken in seconds.items() if taken}
