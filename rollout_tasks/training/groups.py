"""Groups: the rollouts of one item, which a trainer compares with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from benchmark.items import Item
from benchmark.scoring import Outcome, score_each
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.training.rewarded_traces import RewardedRollout, rewarded
from rollout_tasks.training.scored_rollouts import LeftOut, reported, scored


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one item, all of which have ended."""

    item_id: str
    rollouts: tuple[RewardedRollout, ...]
    """The valid ones, over which a group's mean is computed; there may be none."""
    left_out: Mapping[str, int]
    """How many others there were, by the reason: ``infrastructure_loss``, ``no_tokens`` ..."""
    problem: str = ""
    """What was wrong with the first that had no tokens or whose record could not be read: a sentence, or empty."""

    @property
    def rewards(self) -> tuple[float, ...]:
        """The reward of each of its rollouts."""
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def is_level(self) -> bool:
        """Whether no rollout did better than another, as where there are fewer than two: none has an advantage over the mean."""
        return len(set(self.rewards)) < 2


def groups_of(folder: RunFolder) -> Iterator[Group]:
    """Yields the groups of a run that has its report.

    Raises:
        BenchmarkError: The report is missing or cannot be read.
    """
    for item_id, rows in reported(folder.evaluation):
        left_out = LeftOut()
        found = tuple(scored(folder, item_id, rows, rewarded, left_out))
        yield Group(item_id, found, dict(left_out.counted), left_out.first_problem)


def group_of(folder: RunFolder, item: Item, *, metric: str, size: int) -> Group:
    """Scores and reads an item's rollouts, which have all ended, of a run that has no report yet.

    Args:
        folder: The run.
        item: The item.
        metric: The metric for answers that the environment did not score itself; not one that asks a model.
        size: How many rollouts the item has.

    Raises:
        BenchmarkError: The metric cannot be used.
        UserError: A verdict cannot be read.
    """
    names = [rollout_id_of(item.id, index) for index in range(size)]
    verdicts = [folder.verdict(name) or folder.final_verdict(name) for name in names]
    ((_, row),) = score_each([Outcome(item, [verdict.as_result() for verdict in verdicts])], metric=metric)
    left_out = LeftOut()
    found = tuple(scored(folder, item.id, map(asdict, row.rollouts), rewarded, left_out))
    return Group(item.id, found, dict(left_out.counted), left_out.first_problem)
