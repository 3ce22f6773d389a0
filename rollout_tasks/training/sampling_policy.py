"""How often an item is rolled out, how many turns its agent gets, and when a group is large enough: a policy.

Packages add their own with ``[project.entry-points."rollout_tasks.sampling_policies"]``, ``name = "module:Class"``: a class that is
made with ``rollouts`` and ``most_turns``, which a run's options say, and options of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Protocol, cast

from rollout_tasks import registry
from rollout_tasks.errors import UserError
from rollout_tasks.validation_messages import shown

_GROUP = "rollout_tasks.sampling_policies"


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


def sampling_policy(name: str, *, rollouts: int, most_turns: int, options: Mapping[str, Any]) -> SamplingPolicy:
    """Returns a policy by its name.

    Args:
        name: Its name, as in ``--policy``.
        rollouts: How many rollouts an item gets where the policy does not say otherwise.
        most_turns: The most turns that an agent gets.
        options: The policy's own.

    Raises:
        UserError: There is no such policy, or it does not accept its options.
    """
    policy_class = cast(Any, registry.load(_GROUP, "sampling policy", name, SamplingPolicy))
    try:
        accepted = signature(policy_class).parameters
    except (TypeError, ValueError) as error:
        raise UserError(f"--policy {name}: what it is made with cannot be known: {error}") from error
    takes_any = any(one.kind is Parameter.VAR_KEYWORD for one in accepted.values())
    if not takes_any and (unknown := sorted(set(options) - set(accepted))):
        own = sorted(set(accepted) - {"rollouts", "most_turns"})
        raise UserError(
            f"--policy-option: {shown(unknown[0])} is none of --policy {name}: it has {', '.join(own) or 'none'}"
        )
    try:
        return cast(SamplingPolicy, policy_class(rollouts=rollouts, most_turns=most_turns, **options))
    except (TypeError, ValueError) as error:
        raise UserError(f"--policy {name} does not accept its options: {error}") from error


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Rolls each item out equally often, and gives its agent the same turns."""

    rollouts: int = 8
    most_turns: int = 50
    level_after: int | None = None
    """A group whose first rewards, this many, are all the same gets no more rollouts: others are unlikely to differ. None: all are
    waited for, as a rare success is worth most.
    """

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
            ValueError: One cannot be; one clause.
        """
        _check_whole(self, "rollouts", "most_turns", "level_after")

    def sampling(self, past: Sequence[PastRollout]) -> Sampling:  # noqa: ARG002
        """See `SamplingPolicy.sampling`."""
        return Sampling(self.rollouts, self.most_turns)

    def is_enough(self, rewards: Sequence[float], rollouts: int) -> bool:
        """See `SamplingPolicy.is_enough`."""
        return len(rewards) >= rollouts or _is_level(rewards, self.level_after)


@dataclass(frozen=True, slots=True)
class SuccessRatePolicy:
    """Rolls items out less often the more of their rollouts succeed.

    An item whose share of successes s is at least `threshold` gets ``floor(9 / s - 7)`` rollouts: 8 at 0.6, 5 at 0.75, and 2 at
    1.0; any other gets `rollouts`. An item may take as many turns as its longest success so far took. Both are DART's rules.
    """

    rollouts: int = 8
    """Of an item that is not known to be easy, and the most of any."""
    fewest_rollouts: int = 2
    """Of an item that always succeeds; never more than `rollouts`."""
    threshold: float = 0.6
    success: float = 1.0
    """The least reward of a success."""
    remembered: int = 16
    """How many of the newest rollouts of an item decide; the policy may have become better or worse since others."""
    fewest_turns: int = 10
    most_turns: int = 50
    """Also those of an item without a success."""
    level_after: int | None = None
    """As for `FixedPolicy`."""

    def __post_init__(self) -> None:
        """Checks that the numbers fit each other.

        Raises:
            ValueError: They do not; one clause.
        """
        _check_whole(self, "rollouts", "fewest_rollouts", "remembered", "fewest_turns", "most_turns", "level_after")
        if not isinstance(self.threshold, int | float) or not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must be above 0 and 1 at most, got {shown(self.threshold)}")
        if not isinstance(self.success, int | float) or not math.isfinite(self.success):
            raise ValueError(f"success must be a number, got {shown(self.success)}")

    def sampling(self, past: Sequence[PastRollout]) -> Sampling:
        """See `SamplingPolicy.sampling`."""
        newest = past[-self.remembered :]
        lengths = [one.turns for one in newest if one.reward >= self.success]
        longest = max(lengths, default=self.most_turns)
        turns = min(max(longest, self.fewest_turns), self.most_turns)  # also where most_turns is below the fewest
        return Sampling(self._wanted([one.reward for one in newest]), turns)

    def is_enough(self, rewards: Sequence[float], rollouts: int) -> bool:
        """See `SamplingPolicy.is_enough`."""
        return len(rewards) >= rollouts or _is_level(rewards, self.level_after)

    def _wanted(self, rewards: Sequence[float]) -> int:
        rate = sum(reward >= self.success for reward in rewards) / len(rewards) if rewards else 0.0
        if rate < self.threshold:
            return self.rollouts
        wanted = math.floor(9 / rate - 7 + 1e-9)  # 9 / 0.6 - 7 is a little below 8
        return min(max(wanted, self.fewest_rollouts), self.rollouts)


def _is_level(rewards: Sequence[float], level_after: int | None) -> bool:
    return level_after is not None and len(rewards) >= level_after and len(set(rewards)) == 1


def _check_whole(policy: object, *names: str) -> None:
    for name in names:
        value = getattr(policy, name)
        if value is None and name == "level_after":
            continue
        least = 2 if name == "level_after" else 1
        if type(value) is not int or value < least:
            raise ValueError(f"{name} must be a whole number from {least}, got {shown(value)}")
