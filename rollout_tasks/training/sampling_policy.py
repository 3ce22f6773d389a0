"""How often an item is rolled out, how many turns its agent gets, and when a group is large enough: a policy.

`SuccessRatePolicy` is the one that is built in. Any object with its two methods can replace it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PastRollout:
    """A rollout of an item that counted: not one that the infrastructure lost."""

    reward: float
    turns: int


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an item is rolled out next."""

    rollouts: int
    max_turns: int


class SamplingPolicy(Protocol):
    """Decides from what is known; changes nothing, so that one object serves all items."""

    def sampling(self, past: Sequence[PastRollout]) -> Sampling:
        """Returns how an item is rolled out next.

        Args:
            past: Its rollouts so far, the oldest first.
        """

    def is_enough(self, rewards: Sequence[float], rollouts: int) -> bool:
        """Returns whether a group needs no more rollouts although some have not ended; these are then cancelled.

        Args:
            rewards: Those of its rollouts that have ended and count.
            rollouts: How many it was to have.
        """


@dataclass(frozen=True, slots=True)
class SuccessRatePolicy:
    """Rolls items out less often the more of their rollouts succeed.

    An item whose share of successes s is at least `threshold` gets ``floor(9 / s - 7)`` rollouts: 8 at 0.6, 5 at 0.75, and 2 at
    1.0; any other gets `rollouts`. An item may take as many turns as its longest success so far took. Both are DART's rules.
    """

    rollouts: int = 8
    """Of an item that is not known to be easy, and the most of any."""
    fewest_rollouts: int = 2
    threshold: float = 0.6
    success: float = 1.0
    """The least reward of a success."""
    remembered: int = 16
    """How many of the newest rollouts of an item decide; the policy may have become better or worse since others."""
    fewest_turns: int = 10
    most_turns: int = 50
    """Also those of an item without a success."""
    level_after: int | None = None
    """A group whose first rewards, this many, are all the same gets no more rollouts: others are unlikely to differ. None: all are
    waited for, as a rare success is worth most.
    """

    def __post_init__(self) -> None:
        """Checks that the numbers fit each other.

        Raises:
            ValueError: They do not; one clause.
        """
        if not 1 <= self.fewest_rollouts <= self.rollouts:
            raise ValueError(f"must have 1 to {self.rollouts} rollouts at least, got {self.fewest_rollouts}")
        if not 1 <= self.fewest_turns <= self.most_turns:
            raise ValueError(f"must have 1 to {self.most_turns} turns at least, got {self.fewest_turns}")
        if not 0 < self.threshold <= 1:
            raise ValueError(f"must have a threshold above 0 and up to 1, got {self.threshold:g}")
        if self.remembered < 1 or (self.level_after is not None and self.level_after < 1):
            raise ValueError("must look at one rollout at least")

    def sampling(self, past: Sequence[PastRollout]) -> Sampling:
        """See `SamplingPolicy.sampling`."""
        newest = past[-self.remembered :]
        lengths = [one.turns for one in newest if one.reward >= self.success]
        longest = max(lengths, default=self.most_turns)
        turns = min(max(longest, self.fewest_turns), self.most_turns)
        return Sampling(self._wanted([one.reward for one in newest]), turns)

    def is_enough(self, rewards: Sequence[float], rollouts: int) -> bool:
        """See `SamplingPolicy.is_enough`."""
        if len(rewards) >= rollouts:
            return True
        return self.level_after is not None and len(rewards) >= self.level_after and len(set(rewards)) == 1

    def _wanted(self, rewards: Sequence[float]) -> int:
        rate = sum(reward >= self.success for reward in rewards) / len(rewards) if rewards else 0.0
        if rate < self.threshold:
            return self.rollouts
        wanted = math.floor(9 / rate - 7 + 1e-9)  # 9 / 0.6 - 7 is a little below 8
        return min(max(wanted, self.fewest_rollouts), self.rollouts)
