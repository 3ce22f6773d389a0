"""Groups: the rollouts of one item, which a trainer compares with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from benchmark.items import Item
from benchmark.judge import Judge
from benchmark.results import VALID
from benchmark.scoring import Outcome, score_each
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.training.rewarded_traces import NO_CALLS, NO_TOKENS, RewardedRollout, read_rollout
from rollout_tasks.trajectories.traces import TokensUnknown


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one item, all of which have ended."""

    item_id: str
    rollouts: tuple[RewardedRollout, ...]
    """Those that say something about the model; a group's mean is computed over these."""
    left_out: Mapping[str, int]
    """How many others there were, by the reason: ``infrastructure_loss``, ``no_tokens`` ..."""

    @property
    def rewards(self) -> tuple[float, ...]:
        """The reward of each of its rollouts."""
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def is_level(self) -> bool:
        """Whether no rollout did better than another: then none of them has an advantage."""
        return len(set(self.rewards)) < 2


def read_group(folder: RunFolder, item: Item, *, metric: str, size: int, judge: Judge | None = None) -> Group:
    """Scores and reads an item's rollouts, which have all ended.

    Args:
        folder: The run.
        item: The item.
        metric: The metric for answers that the environment did not score itself.
        size: How many rollouts the item has.
        judge: The judge for ``llm_judgement``; default: the one the environment names.

    Raises:
        BenchmarkError: The metric cannot be used.
        UserError: A record cannot be read, or what it says cannot be true.
    """
    verdicts = [folder.final_verdict(rollout_id_of(item.id, index)) for index in range(size)]
    outcome = Outcome(item, [verdict.as_result() for verdict in verdicts])
    ((_, row),) = score_each([outcome], metric=metric, judge=judge)
    found: list[RewardedRollout] = []
    left_out: Counter[str] = Counter()
    for rollout in row.rollouts:
        if rollout.standing not in VALID or rollout.score is None:
            left_out[rollout.standing] += 1
            continue
        try:
            one = read_rollout(folder, item.id, rollout.index, rollout.score)
        except TokensUnknown:
            left_out[NO_TOKENS] += 1
            continue
        if one.traces:
            found.append(one)
        else:
            left_out[NO_CALLS] += 1
    return Group(item.id, tuple(found), dict(left_out))
