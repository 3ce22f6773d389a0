"""Scored runs in real folders, with records of steps, VMs and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Observation, ToolCall, ToolResult
from rollout_tasks.errors import FailureClass
from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.runs.events import EventsFile
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import LeaseRecord, Verdict
from rollout_tasks.trajectories.writer import TrajectoryWriter

LOST = None
"""In the place of a score: the infrastructure lost the rollout."""


@dataclass(frozen=True)
class Took:
    """What each rollout of a run took."""

    actions: Sequence[str] = ("open", "save")
    """The argument of the call of each turn."""
    model: float = 2.0
    environment: float = 1.0
    waited: float = 3.0
    cost: float | None = 0.25


def steps(
    folder: Path, actions: Sequence[str], *, model: float = 2.0, environment: float = 1.0, seen: str = ""
) -> None:
    """A record of an episode: one call for each action, which is its argument."""
    writer = TrajectoryWriter(folder)
    writer.start({})
    writer.observed(Observation(f"desktop {seen}".strip()))
    writer.message({"role": "user", "content": "do it"})
    for turn, action in enumerate(actions, 1):
        asked = [{"id": f"c{turn}", "type": "function", "function": {"name": "press", "arguments": "{}"}}]
        message = {"role": "assistant", "content": None, "tool_calls": asked}
        reply = Reply(message, "", (), "tool_calls", Usage(10, 5, 1, model), served_by="policy")
        writer.message(message, turn=turn, reply=reply)
        result = ToolResult("success", f"pressed {action}", Observation(f"after {action}"))
        writer.step(turn=turn, call=ToolCall(f"c{turn}", "press", {"key": action}), result=result, seconds=environment)
    writer.finish()


def recorded(
    path: Path,
    scores: Mapping[str, Sequence[float | None]],
    *,
    domains: Mapping[str, str] | None = None,
    took: Took | None = None,
    questions: Mapping[str, str] | None = None,
    metric: str = "exact_match",
) -> RunFolder:
    """A scored run: its items' scores, rollout by rollout, on one VM, one after the other."""
    took = took or Took()
    folder = RunFolder(path)
    items = [
        Item(
            name,
            (questions or {}).get(name, "?"),
            "x",
            {"domain": domains[name]} if domains and name in domains else {},
        )
        for name in scores
    ]
    config = RunConfig(metric=metric, rollouts_per_item=max(map(len, scores.values())))
    folder.description.create(config, items, data_path="x.jsonl", data_name="x")
    clock = 1_000.0
    verdicts = []
    for name, own in scores.items():
        for index, score in enumerate(own):
            verdicts.append(_end(folder, f"{name}#{index}", score, took, clock))
            clock += 20.0
    with EventsFile(folder) as events:
        events.note(verdicts)
        events.publish()
    score_run(folder, metric)
    return folder


def _end(folder: RunFolder, rollout_id: str, score: float | None, took: Took, began: float) -> Verdict:
    number = folder.begin_attempt(rollout_id, 1)
    steps(folder.attempt(rollout_id, number), took.actions, model=took.model, environment=took.environment)
    turns = len(took.actions)
    granted = began + took.waited
    ended = granted + turns * (took.model + took.environment) + 1.0
    verdict = Verdict(
        rollout_id,
        number,
        "failed" if score is LOST else "completed",
        score=score,
        failure_class=FailureClass.VM_LOST if score is LOST else None,
        turns=turns,
        usage=Usage(1000, 100),
        cost=took.cost,
        stages={"model": turns * took.model, "acting": turns * took.environment, "evaluation": 0.5},
        worker="w",
        started=began,
        finished=ended,
        lease=LeaseRecord("vm-0", 1, took.waited, granted, ended),
    )
    folder.write_attempt(verdict)
    folder.settle(verdict, written=True)
    return verdict
