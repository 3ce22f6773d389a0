"""Where the rollouts of two runs part, for `rollouts compare`: read from both folders, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from benchmark.comparison import ItemDifference
from rollout_tasks.cli.several_runs import ScoredRun, SeveralRuns
from rollout_tasks.errors import UserError
from rollout_tasks.runs.verdict import Verdict, rollout_id_of, split_rollout_id
from rollout_tasks.runs.verdict_files import settled_verdict
from rollout_tasks.trajectories.divergence import Divergence, Record, first_divergence
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.unicode_text import one_line

_LONGEST_ENDING = 60


@dataclass(frozen=True, slots=True)
class Parting:
    """Two runs' rollouts of one id."""

    at: Divergence
    endings: tuple[str, str]
    """How each ended: its answer, or why it failed."""

    @property
    def actions(self) -> tuple[str, str]:
        """What each did in the step that differs; how it ended where it has no such step."""
        first, second = (
            f"(ended: {ending})" if action is None else action
            for action, ending in zip((self.at.first, self.at.second), self.endings, strict=True)
        )
        return first, second

    def as_dict(self) -> dict[str, Any]:
        """Returns it as JSON types."""
        return asdict(self.at) | {"endings": list(self.endings)}


def partings(first: ScoredRun, second: ScoredRun, items: Sequence[ItemDifference]) -> dict[str, Parting | str]:
    """Returns where the rollouts of some items part, by item; or why that is not known.

    Args:
        first: A run.
        second: Another one.
        items: Items whose scores differ.
    """
    found: dict[str, Parting | str] = {}
    for item in items:
        if item.index is None:
            found[item.item_id] = "no rollout of the same index is valid in both"
            continue
        try:
            found[item.item_id] = _parting(first, second, rollout_id_of(item.item_id, item.index))
        except UserError as error:
            found[item.item_id] = str(error)
    return found


def partings_of(several: SeveralRuns, rollout_id: str) -> dict[str, Parting]:
    """Returns where each run's rollout of an id parts from the first run's, by the run's name.

    Args:
        several: The runs.
        rollout_id: The rollout, as a user gave it.

    Raises:
        UserError: There is no such rollout, or its record cannot be read.
    """
    try:
        item_id, index = split_rollout_id(rollout_id)
    except ValueError:
        form = "must be an item's id, # and an index, as in task-1#0"
        raise UserError(f"--rollout: {form}, got {rollout_id!r}") from None
    for run in several.runs:
        if item_id not in several.item_ids or not 0 <= index < run.items[item_id].asked:
            raise UserError(f"--rollout: run {run.name} has no rollout {rollout_id!r}")
    first = several.runs[0]
    return {run.name: _parting(first, run, rollout_id_of(item_id, index)) for run in several.runs[1:]}


def _parting(first: ScoredRun, second: ScoredRun, rollout_id: str) -> Parting:
    verdicts = []
    for run in (first, second):
        verdict = settled_verdict(run.folder, rollout_id)
        if verdict is None:
            raise UserError(f"rollout {rollout_id} of run {run.name} has no attempt that counts")
        verdicts.append((run, verdict))
    records = (Record(run.folder.path, run.folder.attempt(rollout_id, verdict.attempt)) for run, verdict in verdicts)
    try:
        at = first_divergence(*records)
    except FileNotFoundError as error:
        raise UserError(f"rollout {rollout_id} has no record in both runs: {error.args[0]} is missing") from None
    except TrajectoryError as error:
        raise UserError(str(error)) from error
    return Parting(at, (_ending(verdicts[0][1]), _ending(verdicts[1][1])))


def _ending(verdict: Verdict) -> str:
    """Returns how a rollout ended; its values are as the file has them."""
    said = one_line(str(verdict.failure_class or verdict.answer or verdict.ending or verdict.status))
    return said if len(said) <= _LONGEST_ENDING else f"{said[: _LONGEST_ENDING - 3]}..."


def show_partings(rollout_id: str, first: str, found: Mapping[str, Parting], console: Console) -> None:
    """Prints where rollouts part.

    Args:
        rollout_id: Their id.
        first: The name of the first run.
        found: By the names of the others.
        console: For text without markup.
    """
    for name, one in found.items():
        steps = one.at.steps
        lines = [f"Rollout {one_line(rollout_id)}: {first} has {steps[0]} steps, {name} has {steps[1]}", _seen(one.at)]
        if one.at.step is None:
            lines += ["They have the same steps."]
            lines += [f"{run} ended: {ending}" for run, ending in zip((first, name), one.endings, strict=True)]
        else:
            pairs = zip((first, name), one.actions, strict=True)
            lines += [f"Step {one.at.step}, {run}: {one_line(action)}" for run, action in pairs]
        console.print("\n  ".join(lines), soft_wrap=True)


def _seen(at: Divergence) -> str:
    if at.seen_after is None:
        return "They saw the same before they parted." if at.step is not None else "They saw the same."
    when = "at the beginning" if at.seen_after == 0 else f"after step {at.seen_after}"
    return f"They first saw something else {when}."
